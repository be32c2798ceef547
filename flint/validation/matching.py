"""Pairs captured ops with executed ones, class by class, and says how each pair was found.

The idea: a recording must come in the same order, so its classes are aligned by longest common
subsequence, and one extra op makes nothing behind it a mismatch.  XLA orders a program anew, so
there the op's identity decides: the same sizes and the same source line, then the same sizes.  What
is left may still be explained (combined collectives); what is not, is a mismatch.

    result = match(captured, executed, rules)
    result.pairs[0], result.unmatched_captured
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from flint.validation.alignment import aligned, longest_ascending
from flint.validation.classes import OpClass
from flint.validation.keys import COMBINED, PARTED, Rules
from flint.validation.observed import OpFacts


class Evidence(IntEnum):
    """Why two ops are held to be the same."""

    NAME = 0  # class, name and order: the trace has no sizes, so this is a weak match
    SIZES = 1  # what they compute or send as well
    IDENTITY = 2  # and where the program's source has them


@dataclass(slots=True)
class Matching:
    """How the ops of one rank pair up.

    Attributes:
        pairs: (captured, executed, evidence); positions in what ``match`` was given.
        explained: reason -> how many pairs differ in form by it.
        unmatched_captured, unmatched_executed: positions, ascending.
        reordered: pairs of a recording in another order than recorded.
        in_order: class -> pairs that follow each other in both.
    """

    pairs: list[tuple[int, int, Evidence]] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    unmatched_captured: list[int] = field(default_factory=list)
    unmatched_executed: list[int] = field(default_factory=list)
    reordered: list[tuple[int, int]] = field(default_factory=list)
    in_order: dict[OpClass, int] = field(default_factory=dict)


def match(captured: Sequence[OpFacts], executed: Sequence[OpFacts], rules: Rules) -> Matching:
    """Pair the ops of one rank.

    Args:
        captured: in issue order.
        executed: in the order in which they began.
        rules: of ``rules_for``.
    """
    result = Matching()
    ours, theirs = _by_class(captured, rules), _by_class(executed, rules)
    for kind in sorted(ours.keys() | theirs.keys()):
        if not (rules.recorded or kind.must_match):
            continue  # XLA fuses them: counted, not compared
        mine, yours = ours.get(kind, []), theirs.get(kind, [])
        pairs = _pairs(captured, executed, mine, yours, rules, result)
        left = _without(mine, (i for i, _, _ in pairs))
        over = _without(yours, (j for _, j, _ in pairs))
        if kind.collective and kind not in rules.by_name:
            parted = _parted(captured, executed, left, over, rules, result)
            left = _without(left, (i for i, _, _ in parted))
            over = _without(over, (j for _, j, _ in parted))
            pairs += parted
        for i, j, _ in pairs:
            result.explained.update(rules.reasons(captured[i], executed[j]))
        result.pairs += pairs
        result.in_order[kind] = longest_ascending([j for _, j, _ in sorted(pairs)])
        result.unmatched_captured += left
        result.unmatched_executed += over
    result.pairs.sort()
    result.unmatched_captured.sort()
    result.unmatched_executed.sort()
    return result


def _by_class(ops: Sequence[OpFacts], rules: Rules) -> dict[OpClass, list[int]]:
    found: dict[OpClass, list[int]] = defaultdict(list)
    for number, facts in enumerate(ops):
        found[rules.kind(facts)].append(number)
    return found


def _without(positions: list[int], taken: Iterable[int]) -> list[int]:
    gone = set(taken)
    return [position for position in positions if position not in gone]


_Pairs = list[tuple[int, int, Evidence]]


def _pairs(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    mine: list[int],
    yours: list[int],
    rules: Rules,
    result: Matching,
) -> _Pairs:
    our_keys = [rules.key(captured[i]) for i in mine]
    their_keys = [rules.key(executed[j]) for j in yours]
    named = bool(mine) and rules.kind(captured[mine[0]]) in rules.by_name
    evidence = Evidence.NAME if named else Evidence.SIZES
    if rules.recorded:
        numbers: dict[Hashable, int] = {}
        a, b = (
            np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
            for keys in (our_keys, their_keys)
        )
        found = aligned(a, b) or []
        pairs = [(mine[i], yours[j], evidence) for i, j in found]
    else:
        lines = [(key, captured[i].source) for i, key in zip(mine, our_keys, strict=True)]
        others = [(key, executed[j].source) for j, key in zip(yours, their_keys, strict=True)]
        pairs = [
            (mine[i], yours[j], Evidence.IDENTITY)
            for i, j in _equal(lines, others)
            if captured[mine[i]].source
        ]
    left = {i for i, _, _ in pairs}
    over = {j for _, j, _ in pairs}
    rest = [(i, key) for i, key in zip(mine, our_keys, strict=True) if i not in left]
    others_rest = [(j, key) for j, key in zip(yours, their_keys, strict=True) if j not in over]
    for i, j in _equal([key for _, key in rest], [key for _, key in others_rest]):
        pair = rest[i][0], others_rest[j][0]
        if rules.recorded:
            result.reordered.append(pair)
        pairs.append((*pair, evidence))
    return pairs


def _equal(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Positions of equal keys, the first of each with the first."""
    places: dict[Hashable, deque[int]] = defaultdict(deque)
    for j, key in enumerate(theirs):
        places[key].append(j)
    return [(i, places[key].popleft()) for i, key in enumerate(ours) if places.get(key)]


def _parted(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    left: list[int],
    over: list[int],
    rules: Rules,
    result: Matching,
) -> _Pairs:
    """Collectives that differ in how many buffers go at once; all of their buffers must pair up."""
    pairs: _Pairs = []
    for few, many, reason, flipped in (
        (over, left, COMBINED, False),
        (left, over, PARTED, True),
    ):
        whole, single = (captured, executed) if flipped else (executed, captured)
        free: dict[Hashable, deque[int]] = defaultdict(deque)
        for number in many:
            parts = rules.parts(single[number])
            if len(parts) == 1:
                free[parts[0], single[number].group].append(number)
        for number in few:
            parts = rules.parts(whole[number])
            wanted = [(part, whole[number].group) for part in parts]
            enough = Counter(wanted)
            if len(parts) < 2 or any(len(free[key]) < count for key, count in enough.items()):
                continue
            for key in wanted:
                other = free[key].popleft()
                pair = (number, other) if flipped else (other, number)
                pairs.append((*pair, Evidence.SIZES))
                result.explained[reason] += 1
    return pairs
