"""Matrix products that a compiler has merged, padded or cut, found before ops are matched.

The idea: products of the same operand run as one, the other operands side by side (XLA's
dot-merger), libraries get their sizes in multiples of eight, and a long sum is cut into a batch of
short ones (split-k).  Layers are equal, so a node of the graph is rewritten everywhere or nowhere;
a rewrite is accepted if it brings the capture closer to the run, size by size, and its partner
exists.

    merged_gemms(matching)
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from flint.observed.classes import OpClass
from flint.observed.columns import Gemm, OpFacts
from flint.validation.expected.duplicates import origin
from flint.validation.expected.ops import Expected
from flint.validation.matching.equivalence import Rules
from flint.validation.matching.pairing import Matching

MERGED = "matrix products of the same operand that the compiler runs as one"
PADDED = "a matrix product whose sizes the compiler pads to multiples of eight"
CUT = "a matrix product whose sum the compiler splits into parts"

_MULTIPLE = 8
_CUTS = (2, 4, 8, 16, 32, 64, 128)
#: For larger families only the whole is tried, not its parts.
_PARTS_OF = 5
#: A graph with more candidates is skipped, because they are tried against each other.
_MOST = 20_000

#: A product's place in the program, the same in each iteration of a loop.
_Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Nodes that may run as one: what they would look like."""

    places: tuple[_Place, ...]
    key: Hashable
    reasons: tuple[str, ...]


def merged_gemms(matching: Matching) -> None:
    """Pair products of XLA's programs that ran as another number or size of products."""
    captured, executed, rules = matching.captured, matching.executed, matching.rules
    captured_ids = [i for i in matching.unmatched_captured if _plain(captured[i])]
    executed_ids = [j for j in matching.unmatched_executed if _plain(executed[j])]
    expected = matching.expected
    if expected is None or OpClass.GEMM in rules.by_name or not captured_ids or not executed_ids:
        return
    at: dict[_Place, list[int]] = defaultdict(list)
    for i in captured_ids:
        at[int(expected.graph[i]), int(expected.node[i])].append(i)
    ran = Counter(rules.key(executed[j]) for j in executed_ids)
    surplus = ran.copy()
    surplus.subtract(rules.key(captured[i]) for i in captured_ids)
    if not any(surplus.values()):
        return
    candidates = _candidates(expected, captured, at, rules)
    if len(candidates) > _MOST:
        return
    free: dict[Hashable, deque[int]] = defaultdict(deque)
    for j in executed_ids:
        free[rules.key(executed[j])].append(j)
    for item in _believed(candidates, captured, at, ran, surplus, rules):
        for together in zip(*(at[place] for place in item.places), strict=True):
            matching.pair_merged(together, free[item.key].popleft())
            matching.explained.update({reason: len(together) for reason in item.reasons})


def _plain(facts: OpFacts) -> bool:
    return facts.kind == OpClass.GEMM and facts.gemms is not None and len(facts.gemms) == 1


def _candidates(
    expected: Expected, captured: Sequence[OpFacts], at: dict[_Place, list[int]], rules: Rules
) -> list[_Candidate]:
    """Nodes that share an operand, and single nodes, in sizes that a library would get."""
    families: dict[Hashable, list[_Place]] = defaultdict(list)
    for place, positions in at.items():
        graph, node = expected.graphs[place[0]], place[1]
        operands = graph[node].operands
        if len(operands) != 2:
            continue
        batch, m, n, k = _size(captured[positions[0]])
        for side, shared in ((0, m), (1, n)):
            value = origin(graph, operands[side])
            families[place[0], value, side, batch, shared, k, len(positions)].append(place)
    found: list[_Candidate] = []
    for family, places in families.items():
        assert isinstance(family, tuple)
        side = family[2]
        sizes = range(2, len(places) + 1) if len(places) <= _PARTS_OF else (len(places),)
        for count in sizes:
            for some in itertools.combinations(places, count) if count > 1 else ():
                dims = [_size(captured[at[place][0]]) for place in some]
                other = sum(size[2 - side] for size in dims)
                batch, m, n, k = dims[0]
                whole = (batch, m, other, k) if side == 0 else (batch, other, n, k)
                found += _sized(captured[at[some[0]][0]], some, whole, (MERGED,), rules)
    for place, positions in at.items():
        facts = captured[positions[0]]
        found += _sized(facts, (place,), _size(facts), (), rules)
        batch, m, n, k = _size(facts)
        for parts in _CUTS:
            if k % parts == 0 and k > parts:
                cut = replace(facts, gemms=((batch * parts, m, n, k // parts),))
                found.append(_Candidate((place,), rules.key(cut), (CUT,)))
    return found


def _size(facts: OpFacts) -> Gemm:
    assert facts.gemms is not None
    return facts.gemms[0]


def _sized(
    like: OpFacts, places: tuple[_Place, ...], size: Gemm, reasons: tuple[str, ...], rules: Rules
) -> list[_Candidate]:
    """A candidate unpadded and padded, as far as these are changes."""
    batch, *rest = size
    m, n, k = (-(-side // _MULTIPLE) * _MULTIPLE for side in rest)
    found = []
    if reasons:
        found.append(_Candidate(places, rules.key(replace(like, gemms=(size,))), reasons))
    if (m, n, k) != tuple(rest):
        key = rules.key(replace(like, gemms=((batch, m, n, k),)))
        found.append(_Candidate(places, key, (*reasons, PADDED)))
    return found


def _believed(
    candidates: list[_Candidate],
    captured: Sequence[OpFacts],
    at: dict[_Place, list[int]],
    executed: Counter[Hashable],
    surplus: Counter[Hashable],
    rules: Rules,
) -> list[_Candidate]:
    """Candidates that bring both sides closer, the most effective first.

    Args:
        candidates: all candidates.
        captured, at: facts of the ops, and the ops of a place.
        executed: how often each key ran; ops used by a candidate are subtracted.
        surplus: how much more often each key ran than was captured; kept up to date.
        rules: rules for keys.
    """
    # Layers are equal: candidates with the same keys have the same gain, computed once.
    alike: dict[Hashable, deque[_Candidate]] = defaultdict(deque)
    changes: dict[Hashable, Counter[Hashable]] = {}
    for item in candidates:
        change = _changes(item, captured, at, rules)
        signature = item.key, frozenset(change.items())
        alike[signature].append(item)
        changes[signature] = change

    def gain(signature: Hashable) -> int:
        """By how much both sides come closer; 0 if not enough of the new size ran."""
        item = alike[signature][0]
        if executed[item.key] < len(at[item.places[0]]):
            return 0
        return sum(
            abs(surplus[key]) - abs(surplus[key] + change)
            for key, change in changes[signature].items()
        )

    used: set[_Place] = set()
    chosen: list[_Candidate] = []
    while alike:
        best = max(alike, key=gain)  # the first of equal ones, in the order of the program
        if gain(best) <= 0:
            return chosen
        item = alike[best].popleft()
        if not used.intersection(item.places):
            chosen.append(item)
            used.update(item.places)
            executed[item.key] -= len(at[item.places[0]])
            surplus.update(changes[best])
        if not alike[best]:
            del alike[best]
    return chosen


def _changes(
    item: _Candidate, captured: Sequence[OpFacts], at: dict[_Place, list[int]], rules: Rules
) -> Counter[Hashable]:
    """The surplus if these nodes run as one."""
    changes: Counter[Hashable] = Counter()
    for place in item.places:
        positions = at[place]
        changes[rules.key(captured[positions[0]])] += len(positions)
    changes[item.key] -= len(at[item.places[0]])
    return changes
