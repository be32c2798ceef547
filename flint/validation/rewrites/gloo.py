"""Copies and divisions that gloo makes for the collectives of a rank.

The idea: an all-gather uses one buffer, which is copied part by part, and so does a gather at its
root; a reduce-scatter is an all-reduce in a copy, from which the rank's part is copied; a mean is a
sum that is divided (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp).  First the ops that a rank's
collectives allow are counted; then executed ops are taken from that count.

    on_own_threads(matching)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flint.graph.tensor_types import DTYPE_BITS
from flint.observed.classes import OpClass
from flint.validation.matching.pairing import Matching
from flint.validation.rewrites.cpu_substitutes import largest_operand, unmatched_light
from flint.validation.rewrites.gather_scatter import call_of

GLOO = "gloo's own work: copies in and out of its buffers, the division of a mean"

#: Op that gloo calls -> what it is counted as.
_COUNTED_AS = {"clone": "copy", "copy_": "copy", "div_": "div", "div": "division of others"}


def on_own_threads(matching: Matching) -> None:
    """Count what gloo may have run, and explain what it ran on threads without heavy ops."""
    matching.gloo = _allowed(matching)
    threads, executed = matching.threads, matching.executed
    if threads:
        programs = {threads[j] for j, facts in enumerate(executed) if facts.kind.must_match}
        others = [j for j in range(len(executed)) if threads[j] not in programs]
        matching.explain(GLOO, [], _take(matching, others))


def on_program_threads(matching: Matching) -> None:
    """Explain the rest of gloo's work."""
    matching.explain(GLOO, [], _take(matching, unmatched_light(matching)[1]))


def _allowed(matching: Matching) -> Counter[tuple[str, int]]:
    """(what, elements) -> how many of these gloo may run."""
    allowed: Counter[tuple[str, int]] = Counter()
    gathers = {j for _, j, _ in matching.pairs if call_of(matching.executed[j]) == "gather"}
    own = set(gathers)  # the root also copies its own part
    for i, j, _ in matching.pairs:
        facts = matching.captured[i]
        if j in gathers and facts.kind == OpClass.RECV:
            allowed["copy", largest_operand(facts)] += 1 + (j in own)
            own.discard(j)
        members = len(facts.group or ())
        for size, (_, dtype) in zip(facts.parts or (), facts.operands or (), strict=False):
            elements = size * 8 // DTYPE_BITS.get(dtype, 8)
            if OpClass.ALL_GATHER in (facts.kind, matching.executed[j].kind):
                allowed["copy", elements] += members
            elif facts.kind == OpClass.REDUCE_SCATTER:
                allowed["copy", elements] += 1
                allowed["div", elements] += 1
                allowed["copy", elements // max(1, members)] += 1
            elif facts.kind == OpClass.ALL_REDUCE:
                allowed["div", elements] += 1
    return allowed


def _take(matching: Matching, executed_ids: Iterable[int]) -> list[int]:
    """Those of these ops that are gloo's, up to the allowed number."""
    taken = []
    for j in executed_ids:
        facts = matching.executed[j]
        name = facts.name.removeprefix("aten::")
        key = _COUNTED_AS.get(name, name), largest_operand(facts)
        if matching.gloo[key] > 0:
            matching.gloo[key] -= 1
            taken.append(j)
    return taken
