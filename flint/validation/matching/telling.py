"""Light ops without a partner that tell another program: an activation, a loss, an optimizer.

The idea: backends split and merge light ops, so that one of other sizes in the place of another is
no evidence.  But of element-wise ops and reductions there must be as many of each name in each
stretch of the step, between two heavy ops that ran as captured; one too many or too few is another
program, and the same names elsewhere do not hide it.

    captured, executed = telling(matching, trace, rows)      # positions without a partner
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

import numpy as np

from flint.observed.classes import OpClass
from flint.observed.columns import Ints, Observed, OpFacts
from flint.observed.selection import plain_name
from flint.validation.matching.pairing import Matching

#: Light classes whose ops are what the program asks for; copies are also made by backends.
_TELLING = frozenset({OpClass.ELEMENTWISE, OpClass.REDUCTION})
#: One of so many ops stands at a wrong place in execution traces: threads end ops at once.
_MIXED_UP = 100
_FOREACH = "_foreach_"


def telling(matching: Matching, trace: Observed, rows: Ints) -> tuple[set[int], set[int]]:
    """Captured and executed light ops without a partner that are a difference.

    Args:
        matching: of a recording.
        trace: Kineto's or the observer's.
        rows: of the executed ops.
    """
    heavy = sorted((i, j) for i, j, _ in matching.pairs if matching.captured[i].kind.must_match)
    sides = [
        [
            ((bisect_left(before, number), name_of(ops[number])), number)
            for number in positions
            if ops[number].kind in _TELLING and not _unlisted(ops[number])
        ]
        for ops, positions, before in (
            (matching.captured, matching.unmatched_captured, [i for i, _ in heavy]),
            (matching.executed, matching.unmatched_executed, sorted(j for _, j in heavy)),
        )
    ]
    captured, executed = (
        _beyond(side, Counter(key for key, _ in other)) for side, other in (sides, sides[::-1])
    )
    if trace.form != "pytorch-et":
        return captured, executed
    captured = _beyond(
        [(name_of(matching.captured[i]), i) for i in captured], _inside(trace, rows)
    )  # fmt: skip
    few = len(captured) + len(executed) <= max(2, len(matching.executed) // _MIXED_UP)
    return captured, set() if few else executed


def name_of(facts: OpFacts) -> str:
    """An op's name, the same for one tensor and for a list of them."""
    return plain_name(facts.name).removeprefix(_FOREACH)


def _unlisted(facts: OpFacts) -> bool:
    """Whether a profiler left the tensors of a list out, which may then be numbers of the host."""
    return "::" + _FOREACH in facts.name and not any(shape for shape, _ in facts.operands or ())


def _beyond(side: Iterable[tuple[object, int]], others: Counter[object]) -> set[int]:
    """The positions of a side for whose key there is none left among the others."""
    left, found = Counter(others), set()
    for key, number in side:
        left[key] -= 1
        if left[key] < 0:
            found.add(number)
    return found


def _inside(trace: Observed, rows: Ints) -> Counter[object]:
    """Names of ops of the same step that are not compared, because they are inside of others.

    As many may be there by the observer's mistake.
    """
    if not len(rows):
        return Counter()
    step = trace.rows(int(trace.rank[rows[0]]), int(trace.step[rows[0]]))
    hidden = trace.op[np.setdiff1d(step, rows)].tolist()
    return Counter(name_of(trace.facts[number]) for number in hidden)
