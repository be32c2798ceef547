"""The rewrites of a comparison, in the order in which they are tried.

The idea: one ``Matching`` goes from step to step.  Rewrites that turn several ops into one come
first, then equal ops, then those that ran in another form; remaining light ops may still be a
backend's own work.  An op that no step pairs or explains is a mismatch.

    match(Matching(captured, executed, rules))
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from itertools import chain
from typing import TypeAlias

from flint.observed.classes import OpClass
from flint.validation.matching.alignment import longest_ascending
from flint.validation.matching.equivalence import Rules
from flint.validation.matching.form_reasons import form_reasons
from flint.validation.matching.pairing import Matching
from flint.validation.matching.same_ops import in_another_order, same_ops
from flint.validation.rewrites.all_reduces import rewritten_all_reduces
from flint.validation.rewrites.combined_collectives import combined_collectives
from flint.validation.rewrites.composed_attention import composed_attention, kernel_on_the_cpu
from flint.validation.rewrites.cpu_substitutes import (
    cast,
    decomposed,
    functional,
    heads,
)
from flint.validation.rewrites.foreach import foreach
from flint.validation.rewrites.gather_scatter import gradients_of_gathers, through_root
from flint.validation.rewrites.gemm_forms import multiplied, pointwise, ragged, ungrouped
from flint.validation.rewrites.gemms import merged_gemms
from flint.validation.rewrites.gloo import on_own_threads, on_program_threads
from flint.validation.rewrites.host_work import copied, prepared
from flint.validation.rewrites.light_ops import (
    checked,
    conjugates,
    on_nothing,
    on_numbers,
    read_errors,
    spread,
    zeros,
)
from flint.validation.rewrites.listed_arguments import listed_arguments
from flint.validation.rewrites.recurrent import at_once, in_cells
from flint.validation.rewrites.recurrent_light import lengths, recurrent
from flint.validation.rewrites.resharded import resharded

HEAVY = frozenset(kind for kind in OpClass if kind.must_match)
LIGHT = frozenset(OpClass) - HEAVY

#: Tried one after another on the ops of each class.
OF_A_CLASS = (same_ops, combined_collectives, listed_arguments, foreach, in_another_order)


class Run(Enum):
    """What is compared: an XLA program or a recording of PyTorch, and where it ran."""

    XLA_ON_DEVICE = auto()
    XLA_ON_HOST = auto()
    RECORDED_ON_DEVICE = auto()
    RECORDED_ON_HOST = auto()


def _run(rules: Rules) -> Run:
    if rules.recorded:
        return Run.RECORDED_ON_HOST if rules.on_host else Run.RECORDED_ON_DEVICE
    return Run.XLA_ON_HOST if rules.on_host else Run.XLA_ON_DEVICE


def class_by_class(kinds: frozenset[OpClass], matching: Matching) -> None:
    """Pair the ops of each of these classes, and count how many are in order."""
    for kind in sorted(kinds.intersection(chain(*matching.kinds))):
        before = len(matching.pairs)
        for rewrite in OF_A_CLASS:
            rewrite(matching, kind)
        pairs = matching.pairs[before:]
        for i, j, _ in pairs:
            reasons = form_reasons(matching.rules, matching.captured[i], matching.executed[j])
            matching.explained.update(reasons)
        firsts = {i: j for i, j, _ in sorted(pairs, reverse=True)}
        matching.in_order[kind] = longest_ascending([firsts[i] for i in sorted(firsts)])


Rewrite: TypeAlias = Callable[[Matching], None]
_XLA = (Run.XLA_ON_DEVICE, Run.XLA_ON_HOST)
_RECORDED = (Run.RECORDED_ON_DEVICE, Run.RECORDED_ON_HOST)
_ON_HOST = (Run.RECORDED_ON_HOST,)

#: Light ops of PyTorch's CPU backend.  Gloo's are recognised only by their elements, so they come
#: after the more specific ones.
SUBSTITUTES: tuple[Rewrite, ...] = (
    on_nothing, recurrent, decomposed, checked, read_errors, spread, functional,
    on_program_threads, heads, cast, zeros, on_numbers, lengths, prepared,
)  # fmt: skip

#: What each applies to, and the rewrite.
REWRITES: tuple[tuple[tuple[Run, ...], Rewrite], ...] = (
    ((Run.XLA_ON_DEVICE,), merged_gemms),
    ((Run.XLA_ON_DEVICE,), rewritten_all_reduces),
    (_ON_HOST, in_cells),
    (_ON_HOST, resharded),
    ((*_XLA, *_RECORDED), partial(class_by_class, HEAVY)),
    (_ON_HOST, at_once),
    (_ON_HOST, composed_attention),
    (_ON_HOST, kernel_on_the_cpu),
    (_XLA, ragged),
    (_XLA, pointwise),
    ((Run.XLA_ON_HOST,), ungrouped),
    (_XLA, multiplied),
    (_ON_HOST, gradients_of_gathers),
    (_RECORDED, through_root),
    (_ON_HOST, on_own_threads),
    (_ON_HOST, copied),
    (_RECORDED, partial(class_by_class, LIGHT)),
    (_RECORDED, conjugates),
    *((_ON_HOST, rewrite) for rewrite in SUBSTITUTES),
)


def match(matching: Matching) -> Matching:
    """Pair the ops of one rank; returns the same matching."""
    run = _run(matching.rules)
    for runs, rewrite in REWRITES:
        if run in runs:
            rewrite(matching)
    matching.pairs.sort()
    return matching
