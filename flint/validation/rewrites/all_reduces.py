"""All-reduces that a compiler has rewritten, found before ops are matched.

The idea: XLA puts several all-reduces of a group into one buffer, turns an all-reduce of an
all-reduce into one over both groups, and adds values before the reduction instead of after it. If
the program allows a rewrite, it is accepted if it brings the bytes over each group closer to those
that were sent; buffers put together must add up to the byte.

    rewritten_all_reduces(matching)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable
from typing import NamedTuple

from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.matching.equivalence import Rules
from flint.validation.matching.pairing import Matching
from flint.validation.rewrites.all_reduce_chains import Chain, Form, Key, Place, chains_of, key_of
from flint.validation.rewrites.combined_collectives import COMBINED

FOLDED = "an all-reduce of an all-reduce, which the compiler combines into one over both groups"
ABSORBED = "all-reduces whose results are added: the compiler adds their operands instead"

#: The most sums of bytes that are tried to put buffers together.
_MOST_SUMS = 20_000


class _Buffer(NamedTuple):
    """Captured all-reduces that ran as one part of a buffer, and its bytes."""

    captured: tuple[int, ...]
    size: int


def rewritten_all_reduces(matching: Matching) -> None:
    """Pair all-reduces of XLA programs that did not run as captured."""
    captured, executed, rules = matching.captured, matching.executed, matching.rules
    expected = matching.expected
    captured_ids = [i for i in matching.unmatched_captured if _reduces(captured[i], rules)]
    executed_ids = [j for j in matching.unmatched_executed if _reduces(executed[j], rules)]
    alike = Counter(_sized(captured[i], rules) for i in captured_ids) == Counter(
        _sized(executed[j], rules) for j in executed_ids
    )
    unknown = OpClass.ALL_REDUCE in rules.by_name or not rules.grouped
    if expected is None or alike or unknown:
        return
    at: dict[Place, list[int]] = defaultdict(list)
    for i in captured_ids:
        at[int(expected.graph[i]), int(expected.node[i])].append(i)
    surplus: Counter[Key] = Counter()
    for facts in (executed[j] for j in executed_ids):
        surplus[key_of(facts, rules)] += facts.bytes
    for facts in (captured[i] for i in captured_ids):
        surplus[key_of(facts, rules)] -= facts.bytes
    chains, families = chains_of(expected, captured, at, rules, matching.rank)
    folded = _fold(chains, surplus)
    absorbed = _absorb(chains, families, folded, surplus)
    remaining: dict[Key, list[_Buffer]] = defaultdict(list)
    for number, chain in enumerate(chains):
        if number in absorbed:
            lost = [i for place in chain.places for i in at[place]]
            matching.explain(ABSORBED, lost, [])
            matching.merged.update(rules.key(captured[i]) for i in lost)
            continue
        form = folded.get(number, tuple(((n,), key) for n, key in enumerate(chain.keys)))
        for members, key in form:
            together = list(zip(*(at[chain.places[n]] for n in members), strict=True))
            remaining[key] += [_Buffer(positions, chain.size) for positions in together]
            if len(members) > 1:
                matching.explained[FOLDED] += len(together) * len(members)
    _side_by_side(matching, remaining, executed_ids)


def _reduces(facts: OpFacts, rules: Rules) -> bool:
    return rules.kind(facts) == OpClass.ALL_REDUCE and bool(facts.group) and facts.bytes > 0


def _sized(facts: OpFacts, rules: Rules) -> Hashable:
    return key_of(facts, rules), facts.bytes


def _nearer(surplus: Counter[Key], change: Counter[Key]) -> bool:
    """Whether a change brings both sides closer for every group that it affects."""
    return all(
        surplus[key] <= -bytes_ if bytes_ > 0 else surplus[key] >= -bytes_
        for key, bytes_ in change.items()
        if bytes_
    )


def _fold(chains: list[Chain], surplus: Counter[Key]) -> dict[int, Form]:
    """Chains that ran over several groups at once, and how; ``surplus`` is kept up to date."""
    found: dict[int, Form] = {}
    for number, chain in enumerate(chains):
        for form in chain.forms:
            change = chain.change(form)
            if _nearer(surplus, change):
                found[number] = form
                surplus.update(change)
                break
    return found


def _absorb(
    chains: list[Chain],
    families: list[list[int]],
    folded: dict[int, Form],
    surplus: Counter[Key],
) -> set[int]:
    """Chains that were added to another one of their family; ``surplus`` is kept up to date."""
    found: set[int] = set()
    for family in families:
        for number in family:
            chain = chains[number]
            others = [
                other
                for other in family
                if other != number and other not in found and chains[other].size == chain.size
            ]
            change = chain.change(None)
            if number not in folded and others and _nearer(surplus, change):
                found.add(number)
                surplus.update(change)
    return found


def _side_by_side(
    matching: Matching, remaining: dict[Key, list[_Buffer]], executed_ids: list[int]
) -> None:
    """Pair executed all-reduces with the captured ones whose bytes they contain."""
    executed, rules = matching.executed, matching.rules
    for key, buffers in remaining.items():
        wanted = sorted(
            (executed[j].bytes, j) for j in executed_ids if key_of(executed[j], rules) == key
        )
        for exact in (True, False):
            for size, j in list(wanted):
                chosen = _adding_up([one.size for one in buffers], size, exact)
                if chosen is None:
                    continue
                wanted.remove((size, j))
                together = [i for place in chosen for i in buffers[place].captured]
                matching.pair_merged(together, j)
                if len(chosen) > 1:
                    matching.explained[COMBINED[OpClass.ALL_REDUCE]] += len(together)
                buffers = [one for place, one in enumerate(buffers) if place not in chosen]


def _adding_up(sizes: list[int], wanted: int, exact: bool) -> set[int] | None:
    """Positions of sizes that add up to the wanted size: of a single one, or of several."""
    if exact:
        return {sizes.index(wanted)} if wanted in sizes else None
    total, begins = 0, {0: 0}
    for place, size in enumerate(sizes):  # neighbours first: compilers combine in order
        total += size
        if total - wanted in begins:
            return set(range(begins[total - wanted], place + 1))
        begins[total] = place + 1
    known: dict[int, tuple[int, int]] = {0: (-1, 0)}
    for place, size in enumerate(sizes):
        for total in list(known):
            if total + size <= wanted and total + size not in known:
                known[total + size] = place, total
        if wanted in known or len(known) > _MOST_SUMS:
            break
    if wanted not in known:
        return None
    found: set[int] = set()
    while wanted:
        place, wanted = known[wanted]
        found.add(place)
    return found
