"""All-reduces that a compiler has rewritten, found before ops are matched.

The idea: XLA lays several all-reduces of a group side by side in one buffer, turns an all-reduce of
an all-reduce into one over both groups, and adds up before reducing what would be added up behind.
Where the program allows a rewrite, it is believed if it brings the bytes over each group nearer to
those that were sent; buffers side by side must add up to the byte.

    rewritten = rewrite(expected, captured, executed, rules, rank=0)
    rewritten.pairs, rewritten.absorbed
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.groups import Groups
from flint.observed.classes import OpClass
from flint.observed.columns import OpFacts
from flint.validation.expected.ops import Expected
from flint.validation.matching.equivalence import COMBINED, Rules

FOLDED = "an all-reduce of an all-reduce, which the compiler combines into one over both groups"
ABSORBED = "all-reduces whose results are added: the compiler adds their operands instead"

#: More sums of bytes than are tried to lay buffers side by side, and all-reduces behind a value.
_MOST_SUMS, _MOST_BEHIND = 20_000, 256
#: More all-reduces of each other than are looked at as one.
_LONGEST = 4

#: What buffers in one all-reduce have in common: the group, the element type and the reduction.
_Key: TypeAlias = tuple[tuple[int, ...], str, str]
_Place: TypeAlias = tuple[int, int]


@dataclass(slots=True)
class Rewritten:
    """What has become of all-reduces.

    Attributes:
        pairs: (captured, executed), all but those that run as they were captured.
        absorbed: captured ops without a partner.
        reasons: how many captured ops by why.
    """

    pairs: list[tuple[int, int]] = field(default_factory=list)
    absorbed: list[int] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)


#: How a chain may run: which of its members together, over which group.
_Form: TypeAlias = tuple[tuple[tuple[int, ...], _Key], ...]


class _Unit(NamedTuple):
    """A chain of all-reduces, each of the one before it; most are a single one.

    Attributes:
        places: its members.
        keys: theirs.
        forms: how else it may run, the shortest form first.
        size: bytes of each.
        times: how often each runs.
    """

    places: tuple[_Place, ...]
    keys: tuple[_Key, ...]
    forms: tuple[_Form, ...]
    size: int
    times: int

    def change(self, form: _Form | None) -> Counter[_Key]:
        """What becomes of the surplus if it runs so; None: not at all."""
        found: Counter[_Key] = Counter()
        for key in self.keys:
            found[key] += self.size * self.times
        for _, key in form or ():
            found[key] -= self.size * self.times
        return found


def rewrite(
    expected: Expected,
    captured: Sequence[OpFacts],
    executed: Sequence[OpFacts],
    rules: Rules,
    rank: int,
) -> Rewritten:
    """All-reduces that did not run as they were captured, for XLA's programs."""
    result = Rewritten()
    theirs = [j for j, facts in enumerate(executed) if _reduces(facts, rules)]
    ours = [i for i, facts in enumerate(captured) if _reduces(facts, rules)]
    alike = Counter(_sized(captured[i], rules) for i in ours) == Counter(
        _sized(executed[j], rules) for j in theirs
    )
    if alike or OpClass.ALL_REDUCE in rules.by_name or not rules.grouped:
        return result
    at: dict[_Place, list[int]] = defaultdict(list)
    for i in ours:
        at[int(expected.graph[i]), int(expected.node[i])].append(i)
    surplus: Counter[_Key] = Counter()
    for facts in (executed[j] for j in theirs):
        surplus[_key(facts, rules)] += facts.bytes
    for facts in (captured[i] for i in ours):
        surplus[_key(facts, rules)] -= facts.bytes
    units, families = _units(expected, captured, at, rules, rank)
    folded = _fold(units, surplus)
    absorbed = _absorb(units, families, folded, surplus)
    left: dict[_Key, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
    for number, unit in enumerate(units):
        if number in absorbed:
            lost = [i for place in unit.places for i in at[place]]
            result.absorbed += lost
            result.reasons[ABSORBED] += len(lost)
            continue
        form = folded.get(number, tuple(((n,), key) for n, key in enumerate(unit.keys)))
        for members, key in form:
            together = list(zip(*(at[unit.places[n]] for n in members), strict=True))
            left[key] += [(positions, unit.size) for positions in together]
            if len(members) > 1:
                result.reasons[FOLDED] += len(together) * len(members)
    _side_by_side(left, executed, theirs, rules, result)
    return result


def _reduces(facts: OpFacts, rules: Rules) -> bool:
    return rules.kind(facts) == OpClass.ALL_REDUCE and bool(facts.group) and facts.bytes > 0


def _key(facts: OpFacts, rules: Rules) -> _Key:
    assert facts.group is not None
    return facts.group, facts.dtype, facts.reduction if rules.distinct else ""


def _sized(facts: OpFacts, rules: Rules) -> Hashable:
    return _key(facts, rules), facts.bytes


def _units(
    expected: Expected,
    captured: Sequence[OpFacts],
    at: dict[_Place, list[int]],
    rules: Rules,
    rank: int,
) -> tuple[list[_Unit], list[list[int]]]:
    """All-reduces with those that feed them alone, and families whose results are added up."""
    units: list[_Unit] = []
    families: list[list[int]] = []
    for number, graph in enumerate(expected.graphs):
        nodes = sorted(node for where, node in at if where == number)
        if not nodes:
            continue
        behind, added, readers = _sums(graph, set(nodes))
        inner: dict[int, int] = {}
        for node in nodes:
            [*found] = behind.get(int(graph.operand[graph.operand_ptr[node]]), ())
            if len(found) == 1 and readers[found[0]] == 1:
                inner[node] = found[0]
        unit_of: dict[int, int] = {}
        for node in nodes:
            if node in inner.values():
                continue
            chain = [node]
            while chain[0] in inner:
                chain.insert(0, inner[chain[0]])
            facts = [captured[at[number, one][0]] for one in chain]
            keys = [_key(one, rules) for one in facts]
            forms = _forms(graph, chain, facts, keys, rank)
            for part in [chain] if forms else [[one] for one in chain]:
                unit_of.update(dict.fromkeys(part, len(units)))
                units.append(
                    _Unit(
                        tuple((number, one) for one in part),
                        tuple(key for one, key in zip(chain, keys, strict=True) if one in part),
                        forms, facts[-1].bytes, len(at[number, part[0]]),
                    )
                )  # fmt: skip
        for family in added:
            families.append(sorted({unit_of[node] for node in family if node in unit_of}))
    return units, families


def _forms(
    graph: WorkloadGraph, chain: list[int], facts: list[OpFacts], keys: list[_Key], rank: int
) -> tuple[_Form, ...]:
    """How a chain may run with some of its members, next to each other, as one."""
    items = [graph[node].communication for node in chain]
    groups = [item.groups for item in items if item is not None and item.groups is not None]
    same = {(one.bytes, one.dtype) for one in facts}
    if not 1 < len(chain) == len(groups) <= _LONGEST or len(same) > 1:
        return ()
    if len({item.reduction for item in items if item is not None}) > 1:
        return ()
    found: list[_Form] = []
    for cuts in range(1 << (len(chain) - 1)):  # a bit for each gap: whether the chain is cut there
        parts: list[list[int]] = [[0]]
        for n in range(1, len(chain)):
            if cuts >> (n - 1) & 1:
                parts.append([n])
            else:
                parts[-1].append(n)
        together = [_product([groups[n] for n in part], rank) for part in parts]
        if len(parts) < len(chain) and all(together):
            form = zip(parts, together, strict=True)
            found.append(tuple((tuple(part), (group, *keys[0][1:])) for part, group in form))
    return tuple(sorted(found, key=len))


def _product(groups: Sequence[Groups], rank: int) -> tuple[int, ...]:
    """The ranks whose values meet in a chain; () where some would meet twice."""
    ranks = [rank]
    for group in reversed(groups):
        ranks = [one for other in ranks for one in group.members(other).tolist()]
    return tuple(sorted(ranks)) if len(set(ranks)) == len(ranks) else ()


def _sums(
    graph: WorkloadGraph, nodes: set[int]
) -> tuple[dict[int, frozenset[int]], list[set[int]], Counter[int]]:
    """All-reduces behind each value, families of those that are added up, and their readers."""
    behind: dict[int, frozenset[int]] = {}
    family: dict[int, set[int]] = {node: {node} for node in nodes}
    readers: Counter[int] = Counter()
    made = graph.inputs
    for index in range(len(graph)):
        first, last = graph.operand_ptr[index : index + 2]
        operands = graph.operand[first:last].tolist()
        value = made + int(graph.result_ptr[index])
        found = [behind[operand] for operand in operands if operand in behind]
        if index in nodes:
            readers.update(one for one in frozenset().union(*found))
            behind[value] = frozenset((index,))
        elif graph.kind[index] == NodeKind.COMPUTE and found:
            if graph.role[index] == Role.ALIAS and len(operands) == 1:
                behind[value] = found[0]
                continue
            readers.update(one for one in frozenset().union(*found))
            if graph.tables.ops[graph.op[index]] == "add":
                whole = frozenset().union(*found)
                if len(whole) <= _MOST_BEHIND:
                    behind[value] = whole
                    if len(found) > 1:
                        joined = set().union(*(family[one] for one in whole))
                        family.update(dict.fromkeys(joined, joined))
        elif found:
            readers.update(one for one in frozenset().union(*found))
    distinct = {id(item): item for item in family.values() if len(item) > 1}
    return behind, list(distinct.values()), readers


def _nearer(surplus: Counter[_Key], change: Counter[_Key]) -> bool:
    """Whether a change brings both sides nearer for every group that it touches."""
    return all(
        surplus[key] <= -bytes_ if bytes_ > 0 else surplus[key] >= -bytes_
        for key, bytes_ in change.items()
        if bytes_
    )


def _fold(units: list[_Unit], surplus: Counter[_Key]) -> dict[int, _Form]:
    """Units that ran over several groups at once, and how; ``surplus`` is kept up to date."""
    found: dict[int, _Form] = {}
    for number, unit in enumerate(units):
        for form in unit.forms:
            change = unit.change(form)
            if _nearer(surplus, change):
                found[number] = form
                surplus.update(change)
                break
    return found


def _absorb(
    units: list[_Unit],
    families: list[list[int]],
    folded: dict[int, _Form],
    surplus: Counter[_Key],
) -> set[int]:
    """Units that were added to another one of their family; ``surplus`` is kept up to date."""
    found: set[int] = set()
    for family in families:
        for number in family:
            unit = units[number]
            others = [
                other
                for other in family
                if other != number and other not in found and units[other].size == unit.size
            ]
            change = unit.change(None)
            if number not in folded and others and _nearer(surplus, change):
                found.add(number)
                surplus.update(change)
    return found


def _side_by_side(
    left: dict[_Key, list[tuple[tuple[int, ...], int]]],
    executed: Sequence[OpFacts],
    theirs: list[int],
    rules: Rules,
    result: Rewritten,
) -> None:
    """Give executed all-reduces the captured ones whose bytes they hold."""
    for key, items in left.items():
        wanted = sorted((executed[j].bytes, j) for j in theirs if _key(executed[j], rules) == key)
        for exact in (True, False):
            for size, j in list(wanted):
                chosen = _adding_up([item[1] for item in items], size, exact)
                if chosen is None:
                    continue
                wanted.remove((size, j))
                whole = [items[place] for place in chosen]
                result.pairs += [(i, j) for positions, _ in whole for i in positions]
                if len(whole) > 1:
                    result.reasons[COMBINED[OpClass.ALL_REDUCE]] += sum(
                        len(positions) for positions, _ in whole
                    )
                items = [item for place, item in enumerate(items) if place not in chosen]


def _adding_up(sizes: list[int], wanted: int, exact: bool) -> set[int] | None:
    """Places of sizes that add up to what is wanted: of one alone, or of as many as it takes."""
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
