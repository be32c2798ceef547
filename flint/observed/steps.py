"""Which step of a trace is compared, and which steps are equal to it.

The idea: steps are equal if the same heavy ops ran in them, the same number of times.  The last
step of the majority is taken, so that warm-up steps do no harm; in an execution trace, the one with
the fewest impossible nestings.  If several steps at the end are equal, and no others as often, the
steps before them warmed up, each in its own way.  Otherwise the user chooses; the error names the
op that differs.

    chosen = choose(trace, rank=0, wanted=None)
    chosen.step, chosen.alike
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flint.errors import FlintError, UsageError
from flint.host.readable import listed
from flint.mesh.ragged import Ints
from flint.observed.columns import Observed
from flint.observed.op_text import described
from flint.observed.selection import moved

#: ``--step`` for the mean time of all equal steps.
MEAN = "mean"
_NAMED = 3
#: The number of a step: ProfilerStep#3, step 3, iteration_3.
_NUMBER = re.compile(r"\d+$")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The steps of a rank.

    Attributes:
        step: the compared step, as an index into the trace's steps.
        alike: this and the equal steps, whose times may be averaged.
        notes: what was left out, and why.
    """

    step: int
    alike: tuple[int, ...]
    notes: tuple[str, ...] = ()


def choose(trace: Observed, rank: int, wanted: str | None) -> Chosen:
    """The step to compare.

    Args:
        trace: the trace.
        rank: the rank.
        wanted: a step's name or the number in it; with ``MEAN`` or None, the step is chosen
            automatically.

    Raises:
        UsageError: no step of that name or number.
        FlintError: no step has anything to compare, or there is no majority of equal steps.
    """
    counts = _counts(trace, rank)
    if wanted not in (None, MEAN):
        return Chosen(*_named(trace, counts, str(wanted)))
    compared = [n for n in range(len(trace.steps)) if counts[n].any()]
    if not compared:
        raise FlintError(
            f"{trace.path}: no step contains a collective, GEMM, convolution or attention"
        )
    groups: dict[bytes, list[int]] = defaultdict(list)
    for number in compared:
        groups[counts[number].tobytes()].append(number)
    most, settled = _settled(list(groups.values()), compared[-1])
    step = min(reversed(most), key=lambda number: moved(trace, trace.rows(rank, number)))
    others = [number for number in compared if number not in most]
    only, why = -1, ""
    if 2 * len(most) <= len(compared) and not settled:
        only, why = _single(counts, compared)
    if only >= 0:
        most, step = [only], only
        others = [number for number in compared if number != only]
    elif 2 * len(most) <= len(compared) and not settled:
        last = compared[-1]
        before = [number for number in compared if (counts[number] != counts[last]).any()][-1]
        raise FlintError(
            f"{trace.path}: the steps differ: {_difference(trace, counts, before, last)}: choose "
            f"one with --step ({', '.join(trace.steps[n] for n in compared[:8])})"
        )
    notes: tuple[str, ...] = ()
    if others:
        names = listed([trace.steps[number] for number in others], 4)
        alike = f"unlike the other {len(most)} steps"
        if only >= 0:
            alike = why.format(trace.steps[step])
        notes = (f"not compared: {names}, {alike}: {_difference(trace, counts, others[-1], step)}",)
    return Chosen(step, tuple(most), notes)


def _single(counts: Ints, compared: list[int]) -> tuple[int, str]:
    """The one of at least three steps that shows what all do, and what others have; -1 for none.

    It is the last one whose ops ran equally often in all of them; or, if no two are equal, the last
    of all, if the one before ran the same and more: what DDP sends once, when it has rebuilt its
    buckets.
    """
    of = counts[compared]
    if len(of) < 3:
        return -1, ""
    everywhere = (of == of[0]).all(axis=0)
    alone = [step for step in compared if not counts[step][~everywhere].any()]
    if alone:
        return alone[-1], "in which more ran than what {} and all others have"
    if len(np.unique(of, axis=0)) == len(of) and (of[-1] <= of[-2]).all():
        return compared[-1], "unlike {}, in which nothing ran that had not run before"
    return -1, ""


def _settled(groups: list[list[int]], last: int) -> tuple[list[int], bool]:
    """The largest group of equal steps, and whether it is the only one of that size and ends with
    the last step.
    """
    most = max(groups, key=len)
    sizes = [len(group) for group in groups]
    return most, most[-1] == last and len(most) > 1 and sizes.count(len(most)) == 1


def _named(trace: Observed, counts: Ints, wanted: str) -> tuple[int, tuple[int, ...]]:
    number = numbered(trace.steps, wanted)
    if number is not None:
        alike = (counts == counts[number]).all(axis=1)
        return number, tuple(np.flatnonzero(alike).tolist())
    shown = ", ".join(trace.steps[:20]) + (", ..." if len(trace.steps) > 20 else "")
    raise UsageError(f"{trace.path}: no step {wanted!r}; choose from: {shown}")


def numbered(steps: Sequence[str], wanted: str) -> int | None:
    """The index of the first step with a name, or whose name ends with a number; None without."""
    if wanted in steps:
        return steps.index(wanted)
    ends = [_NUMBER.search(name) for name in steps]
    return next((n for n, end in enumerate(ends) if end and end[0] == wanted), None)


def _counts(trace: Observed, rank: int) -> Ints:
    """How often each heavy op ran in each step, shape [steps, facts]."""
    heavy = np.array([facts.kind.must_match for facts in trace.facts], dtype=np.bool_)
    numbers = np.cumsum(heavy) - 1  # columns of heavy facts only
    inside = (trace.rank == rank) & (trace.step >= 0)
    inside &= heavy[trace.op]
    width = int(heavy.sum())
    flat = trace.step[inside] * width + numbers[trace.op[inside]]
    size = len(trace.steps) * width
    return np.bincount(flat, minlength=size).reshape(len(trace.steps), width)


def _difference(trace: Observed, counts: Ints, one: int, other: int) -> str:
    """Which ops ran more often in one of two steps."""
    heavy = [facts for facts in trace.facts if facts.kind.must_match]
    unequal = np.flatnonzero(counts[one] != counts[other]).tolist()
    parts = [
        f"{described(heavy[n])} ran {_times(counts[one][n])} in {trace.steps[one]} and "
        f"{_times(counts[other][n])} in {trace.steps[other]}"
        for n in unequal[:_NAMED]
    ]
    more = len(unequal) - len(parts)
    return "; ".join(parts) + (f"; and {more:,} more ops" if more else "")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def mean_times(ops: Ints, times: Ints, others: list[tuple[Ints, Ints]]) -> tuple[Ints, int]:
    """Times of a step's ops, as the mean over it and other steps with the same ops.

    Args:
        ops: what ran in the step, shape [ops].
        times: nanoseconds of each.
        others: the same for other steps; the n-th run of an op is compared with the n-th.

    Returns:
        The mean of each, and the number of steps.
    """
    order = np.argsort(ops, kind="stable")
    total, count = times.copy(), 1
    for of_step, spent in others:
        step_order = np.argsort(of_step, kind="stable")
        if len(of_step) != len(ops) or (of_step[step_order] != ops[order]).any():
            continue
        total[order] += spent[step_order]
        count += 1
    return total // count, count
