"""Light ops that reveal another program: an activation, a loss, an optimizer.

The idea: backends split and merge copies, and use other names, all for reasons explained before.
The remaining element-wise ops and reductions must agree in number, name and sizes in each stretch
of the step between two heavy ops that ran as captured; one too many or too few means another
program, and equal names elsewhere do not hide it.

    found = telling(matching, trace, rows)      # positions of ops that are a difference
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from flint.mesh.ragged import Ints
from flint.observed.classes import OpClass
from flint.observed.columns import Observed, OpFacts
from flint.observed.selection import plain_name
from flint.validation.matching.pairing import Matching

#: Light classes whose ops come from the program; copies are also made by backends.
_TELLING = frozenset({OpClass.ELEMENTWISE, OpClass.REDUCTION, OpClass.OTHER})
#: Of the last one, ops that draw numbers: the host does too, to choose a batch.
_DRAWS = re.compile(r"rand|normal|uniform|exponential|multinomial|geometric|cauchy|poisson")
#: One in this many ops is in a wrong place in execution traces, because threads end ops at the same
#: time.
_MIXED_UP = 100
_FOREACH = "_foreach_"


@dataclass(slots=True)
class Telling:
    """Light ops that are a difference, by position.

    Attributes:
        captured, executed: ops without a partner.
        moved: captured ops whose partner ran between other heavy ops.
        forgiven: how many further ones may be the observer's mistakes, which the trace does not
            show.
    """

    captured: set[int] = field(default_factory=set)
    executed: set[int] = field(default_factory=set)
    moved: set[int] = field(default_factory=set)
    forgiven: int = 0


def telling(
    matching: Matching,
    trace: Observed,
    rows: Ints,
    others: Callable[[], Sequence[Ints]] = tuple,
) -> Telling:
    """Light ops that are a difference.

    Args:
        matching: the matching of a recording.
        trace: Kineto's or the observer's trace.
        rows: rows of the executed ops.
        others: the same for the other equal steps.
    """
    before, ran_before = matching.anchors()
    last = len(ran_before)
    sides = [
        [
            ((bisect_left(places, number), _looks(matching, ops[number])), number)
            for number in positions
            if _tells(ops[number])
        ]
        for ops, positions, places in (
            (matching.captured, matching.unmatched_captured, before),
            (matching.executed, matching.unmatched_executed, ran_before),
        )
    ]
    captured, executed = (
        _beyond(side, Counter(key for key, _ in other)) for side, other in (sides, sides[::-1])
    )
    # Steps follow each other: a step that a program repeats is captured from the end of its
    # update on, and an average of weights after it ends the step of a trace.
    early, late = (
        [(looks, number) for (place, looks), number in side if number in some and place == at]
        for side, some, at in zip(sides, (captured, executed), (0, last), strict=True)
    )
    captured -= {number for _, number in early} - _beyond(early, Counter(look for look, _ in late))
    executed -= {number for _, number in late} - _beyond(late, Counter(look for look, _ in early))
    found = Telling(captured, executed)
    for i, j, _ in () if matching.regrouped else matching.pairs:
        place, ran = bisect_left(before, i), bisect_left(ran_before, j)
        if _tells(matching.captured[i]) and place != ran and (place, ran) != (0, last):
            found.moved.add(i)
    if trace.form == "pytorch-et" and (found.captured or found.executed):
        _forgive(found, matching, trace, rows, others())
    return found


def _forgive(
    found: Telling, matching: Matching, trace: Observed, rows: Ints, others: Sequence[Ints]
) -> None:
    """Remove ops that an execution trace may have nested wrongly, as shown by equal steps.

    Without another step, an op may be present that the observer put inside another one, and a few
    may wrongly be outside; their number is counted.
    """
    fewer, more = _inside(trace, rows), Counter[Hashable]()
    names = [_names(trace, some) for some in (rows, *others)]
    if others:
        fewer.clear()
        for other in names[1:]:
            fewer |= other - names[0]
            more |= names[0] - other
    captured, executed = (
        _beyond([(name_of(ops[number]), number) for number in sorted(numbers)], left)
        for ops, numbers, left in (
            (matching.captured, found.captured, fewer), (matching.executed, found.executed, more),
        )
    )  # fmt: skip
    few = len(captured) + len(executed) <= max(2, len(matching.executed) // _MIXED_UP)
    if not others and few:
        executed = set()
    if not others:
        found.forgiven = len(found.captured - captured) + len(found.executed - executed)
    found.captured, found.executed = captured, executed


def _looks(matching: Matching, facts: OpFacts) -> Hashable:
    """The key that must occur equally often on both sides: the name, and on the host also the
    sizes.

    Not all ops that other backends list with other arguments are known.
    """
    shapes = frozenset(shape for shape, _ in facts.operands or () if shape)
    return name_of(facts), shapes if matching.rules.on_host else None


def _names(trace: Observed, rows: Ints) -> Counter[Hashable]:
    return Counter(name_of(trace.facts[number]) for number in trace.op[rows].tolist())


def _tells(facts: OpFacts) -> bool:
    if facts.kind == OpClass.OTHER and _DRAWS.search(plain_name(facts.name)):
        return False
    return facts.kind in _TELLING and not _unlisted(facts)


def name_of(facts: OpFacts) -> str:
    """An op's name, the same for one tensor and for a list of them."""
    return plain_name(facts.name).removeprefix(_FOREACH)


def _unlisted(facts: OpFacts) -> bool:
    """Whether a profiler left out the tensors of a list, which may then be numbers on the host."""
    return "::" + _FOREACH in facts.name and not any(shape for shape, _ in facts.operands or ())


def _beyond(side: Iterable[tuple[Hashable, int]], others: Counter[Hashable]) -> set[int]:
    """The positions of one side whose key has no counterpart left on the other."""
    left, found = Counter(others), set()
    for key, number in side:
        left[key] -= 1
        if left[key] < 0:
            found.add(number)
    return found


def _inside(trace: Observed, rows: Ints) -> Counter[Hashable]:
    """Names of ops of the same step that are not compared because they are inside others.

    The observer may have put that many there by mistake.
    """
    if not len(rows):
        return Counter()
    step = trace.rows(int(trace.rank[rows[0]]), int(trace.step[rows[0]]))
    hidden = trace.op[np.setdiff1d(step, rows)].tolist()
    return Counter(name_of(trace.facts[number]) for number in hidden)
