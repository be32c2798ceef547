"""Ops that are the same on both sides: in a recording by order, in XLA programs by identity.

The idea: a recording must run in the same order, so its ops are aligned by longest common
subsequence, and one extra op makes no later op a mismatch.  XLA reorders a program, so there the
op's identity decides: the same sizes and source line, then the same sizes.

    same_ops(matching, OpClass.GEMM)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.alignment import aligned
from flint.validation.matching.equivalence import Rules
from flint.validation.matching.pairing import Evidence, Matching, Pair, equal, without


def same_ops(matching: Matching, kind: OpClass) -> None:
    """Pair the ops of a class that are the same, except those that the trace contradicts."""
    rules = matching.rules
    captured_ids, executed_ids = matching.unmatched(kind)
    compare = _in_order if rules.recorded else _by_identity
    _pair(matching, compare(matching, captured_ids, executed_ids, kind in rules.by_name))


def in_another_order(matching: Matching, kind: OpClass) -> None:
    """Pair what nothing else explains: ops of a recording in other stretches, or out of order."""
    rules = matching.rules
    if not rules.recorded:
        return
    evidence = Evidence.NAME if kind in rules.by_name else Evidence.SIZES
    # Light ops were aligned within stretches only; heavy ones as a whole.
    for order in (_aligned, equal) if not kind.must_match else (equal,):
        captured_ids, executed_ids = matching.unmatched(kind)
        sides = (matching.captured, captured_ids), (matching.executed, executed_ids)
        keys = [[rules.key(ops[number]) for number in ids] for ops, ids in sides]
        found = [(captured_ids[x], executed_ids[y]) for x, y in order(*keys)]
        if order is equal:
            matching.reordered += found
            matching.certain.update(_unique(matching, kind, [i for i, _ in found]))
        else:
            matching.certain.update(i for i, _ in found)
        _pair(matching, [(i, j, evidence) for i, j in found])


def _unique(matching: Matching, kind: OpClass, captured: Sequence[int]) -> list[int]:
    """Those of the captured ops of a class that look like no other one."""
    key = matching.rules.key
    all_of = [i for i, of in enumerate(matching.kinds[0]) if of is kind] if captured else []
    counts = Counter(key(matching.captured[i]) for i in all_of)
    return [i for i in captured if counts[key(matching.captured[i])] == 1]


def _pair(matching: Matching, pairs: Sequence[Pair]) -> None:
    for i, j, evidence in pairs:
        executed = matching.executed[j]
        if not matching.rules.contradicts(matching.captured[i], executed):
            by_name = evidence == Evidence.NAME and not matching.rules.sized(executed)
            matching.pair(i, j, Evidence.NAME if by_name else max(evidence, Evidence.SIZES))


def _in_order(
    matching: Matching, captured_ids: list[int], executed_ids: list[int], named: bool
) -> list[Pair]:
    """Ops of a recording, aligned in order.

    Light ops are first paired within each stretch between two heavy ones: a backend may run
    additional ones that look alike, and the longest common subsequence does not show which is the
    captured one.
    """
    rules = matching.rules
    evidence = Evidence.NAME if named else Evidence.SIZES
    sides = (matching.captured, captured_ids), (matching.executed, executed_ids)
    keys = [[rules.key(ops[number]) for number in ids] for ops, ids in sides]
    anchors = matching.anchors() if _are_light(matching, captured_ids) else ([], [])
    places = [
        [(bisect_left(before, number), key) for number, key in zip(ids, side, strict=True)]
        for before, (_, ids), side in zip(anchors, sides, keys, strict=True)
    ]
    pairs = _aligned(*places)
    matching.certain.update(captured_ids[i] for i, _ in pairs)
    return [(captured_ids[i], executed_ids[j], evidence) for i, j in pairs]


def _are_light(matching: Matching, captured_ids: list[int]) -> bool:
    return bool(captured_ids) and not matching.kinds[0][captured_ids[0]].must_match


def _aligned(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Positions of equal keys, ascending in both; none if too much differs."""
    numbers: dict[Hashable, int] = {}
    sides = (
        np.array([numbers.setdefault(key, len(numbers)) for key in side], dtype=np.int64)
        for side in (a, b)
    )
    return aligned(*sides) or []


def _by_identity(
    matching: Matching, captured_ids: list[int], executed_ids: list[int], named: bool
) -> list[Pair]:
    """Ops of XLA's programs: the same sizes, and as much of their origin as agrees."""
    captured, executed, rules = matching.captured, matching.executed, matching.rules
    pairs: list[Pair] = []
    if named:  # those with known sizes first
        sized = [j for j in executed_ids if rules.sized(executed[j])]
        alike = equal(
            [rules.sized_key(captured[i]) for i in captured_ids],
            [rules.sized_key(executed[j]) for j in sized],
        )
        pairs = [(captured_ids[i], sized[j], Evidence.SIZES) for i, j in alike]
        captured_ids = without(captured_ids, (i for i, _, _ in pairs))
        executed_ids = without(executed_ids, sized)
    for detail in (2, 1, 0):
        evidence = Evidence.NAME if named else Evidence.IDENTITY if detail else Evidence.SIZES
        buckets = _buckets(captured, captured_ids, rules, detail)
        ran = _buckets(executed, executed_ids, rules, detail)
        found: list[Pair] = []
        for bucket, members in buckets.items():
            others = ran.get(bucket, [])
            found += [(i, j, evidence) for i, j in zip(members, others, strict=False)]
            if len(members) == len(others) and _alone(matching, members, others):
                matching.certain.update(members)
        captured_ids = without(captured_ids, (i for i, _, _ in found))
        executed_ids = without(executed_ids, (j for _, j, _ in found))
        pairs += found
    return pairs


def _alone(matching: Matching, members: list[int], others: list[int]) -> bool:
    """Whether captured ops that look alike are one op of the program, as the executed ones are."""
    facts = matching.captured[members[0]]
    if matching.expected is None or matching.rules.key(facts) in matching.merged:
        return False
    names = {matching.executed[j].name for j in others}
    return len({matching.place(i) for i in members}) == len(names) == 1


def _buckets(
    ops: Sequence[OpFacts], ids: list[int], rules: Rules, detail: int
) -> dict[Hashable, list[int]]:
    """Positions by key and, depending on ``detail``, source line (1) and layer and phase (2)."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number in ids:
        facts = ops[number]
        if not detail or facts.source:
            found[rules.key(facts), (facts.source, facts.origin)[:detail]].append(number)
    return found
