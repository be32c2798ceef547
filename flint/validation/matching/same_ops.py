"""Ops that are the same in both: of a recording by their order, of XLA's programs by identity.

The idea: a recording must come in the same order, so its ops are aligned by longest common
subsequence, and one extra op makes nothing behind it a mismatch.  XLA orders a program anew, so
there the op's identity decides: the same sizes and the same source line, then the same sizes.

    pairs = in_order(captured, executed, [0, 1], [0, 2], rules, result)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from flint.observed.columns import OpFacts
from flint.validation.matching.alignment import aligned
from flint.validation.matching.equivalence import Rules
from flint.validation.matching.pairing import Evidence, Matching, Pairs, equal, without


def in_order(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    mine: list[int],
    yours: list[int],
    rules: Rules,
    result: Matching,
) -> Pairs:
    """Ops of a recording: aligned in order, and what is left over in another order."""
    our_keys = [rules.key(captured[i]) for i in mine]
    their_keys = [rules.key(executed[j]) for j in yours]
    named = bool(mine) and rules.kind(captured[mine[0]]) in rules.by_name
    evidence = Evidence.NAME if named else Evidence.SIZES
    numbers: dict[Hashable, int] = {}
    a, b = (
        np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int64)
        for keys in (our_keys, their_keys)
    )
    pairs = [(mine[i], yours[j], evidence) for i, j in aligned(a, b) or []]
    result.certain.update(i for i, _, _ in pairs)
    left, over = (set(positions) for positions in (mine, yours))
    left -= {i for i, _, _ in pairs}
    over -= {j for _, j, _ in pairs}
    rest = [(i, key) for i, key in zip(mine, our_keys, strict=True) if i in left]
    others = [(j, key) for j, key in zip(yours, their_keys, strict=True) if j in over]
    for i, j in equal([key for _, key in rest], [key for _, key in others]):
        pair = rest[i][0], others[j][0]
        result.reordered.append(pair)
        pairs.append((*pair, evidence))
    return pairs


def by_identity(
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    mine: list[int],
    yours: list[int],
    rules: Rules,
    address: Sequence[Hashable],
    result: Matching,
) -> Pairs:
    """Ops of XLA's programs: the same sizes, and as much of their origin as agrees."""
    pairs: Pairs = []
    named = bool(mine) and rules.kind(captured[mine[0]]) in rules.by_name
    if named:  # those whose sizes are known first
        sized = [j for j in yours if rules.sized(executed[j])]
        alike = equal(
            [rules.sized_key(captured[i]) for i in mine],
            [rules.sized_key(executed[j]) for j in sized],
        )
        pairs = [(mine[i], sized[j], Evidence.SIZES) for i, j in alike]
        mine = without(mine, (i for i, _, _ in pairs))
        yours = without(yours, sized)
    for told in (2, 1, 0):
        ours, theirs = (
            _buckets(ops, positions, rules, told)
            for ops, positions in ((captured, mine), (executed, yours))
        )
        found: Pairs = []
        for bucket, members in ours.items():
            others = theirs.get(bucket, [])
            evidence = Evidence.IDENTITY if told else Evidence.SIZES
            both = zip(members, others, strict=False)
            found += [(i, j, Evidence.NAME if named else evidence) for i, j in both]
            if len(members) == len(others) and address:
                places = {address[i] for i in members}
                if len(places) == len({executed[j].name for j in others}) == 1:
                    result.certain.update(members)
        mine = without(mine, (i for i, _, _ in found))
        yours = without(yours, (j for _, j, _ in found))
        pairs += found
    return pairs


def _buckets(
    ops: Sequence[OpFacts], positions: list[int], rules: Rules, told: int
) -> dict[Hashable, list[int]]:
    """Positions by key and, as ``told``, source line (1) and layer and phase (2)."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for number in positions:
        facts = ops[number]
        if told and not facts.source:
            continue
        place = (facts.source, facts.origin)[:told]
        found[rules.key(facts), place].append(number)
    return found
