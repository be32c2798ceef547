"""All-reduces of each other in a captured program, and those whose results are added up.

The idea: an all-reduce that is the only reader of another one's result forms a chain with it, and a
chain may run as fewer all-reduces over larger groups.  All-reduces whose results are added are a
family: one of them may run for several.

    chains, families = chains_of(expected, captured, at, rules, rank=0)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.joins import renames
from flint.mesh.groups import Groups
from flint.observed.columns import OpFacts
from flint.validation.expected.ops import Expected
from flint.validation.matching.equivalence import Rules

#: The most all-reduces before a value that are followed.
_MOST_BEHIND = 256
#: The most all-reduces in one chain.
_LONGEST = 4

#: Common properties of buffers in one all-reduce: group, element type and reduction.
Key: TypeAlias = tuple[tuple[int, ...], str, str]
Place: TypeAlias = tuple[int, int]
#: How a chain may run: which of its members together, over which group.
Form: TypeAlias = tuple[tuple[tuple[int, ...], Key], ...]


class Chain(NamedTuple):
    """A chain of all-reduces, each of the one before it; most are a single one.

    Attributes:
        places: its members.
        keys: key of each member.
        forms: other forms in which it may run, the shortest first.
        size: bytes of each.
        times: how often each runs.
    """

    places: tuple[Place, ...]
    keys: tuple[Key, ...]
    forms: tuple[Form, ...]
    size: int
    times: int

    def change(self, form: Form | None) -> Counter[Key]:
        """The surplus if it runs in this form; None if it does not run."""
        found: Counter[Key] = Counter()
        for key in self.keys:
            found[key] += self.size * self.times
        for _, key in form or ():
            found[key] -= self.size * self.times
        return found


def key_of(facts: OpFacts, rules: Rules) -> Key:
    """The properties that all-reduces in the same buffer must share."""
    assert facts.group is not None
    return facts.group, facts.dtype, facts.reduction if rules.distinct else ""


def chains_of(
    expected: Expected,
    captured: Sequence[OpFacts],
    at: dict[Place, list[int]],
    rules: Rules,
    rank: int,
) -> tuple[list[Chain], list[list[int]]]:
    """Chains of all-reduces, and families whose results are added up."""
    chains: list[Chain] = []
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
        chain_of: dict[int, int] = {}
        for node in nodes:
            if node in inner.values():
                continue
            members = [node]
            while members[0] in inner:
                members.insert(0, inner[members[0]])
            facts = [captured[at[number, one][0]] for one in members]
            keys = [key_of(one, rules) for one in facts]
            forms = _forms(graph, members, facts, keys, rank)
            for part in [members] if forms else [[one] for one in members]:
                chain_of.update(dict.fromkeys(part, len(chains)))
                chains.append(
                    Chain(
                        tuple((number, one) for one in part),
                        tuple(key for one, key in zip(members, keys, strict=True) if one in part),
                        forms, facts[-1].bytes, len(at[number, part[0]]),
                    )
                )  # fmt: skip
        for family in added:
            families.append(sorted({chain_of[node] for node in family if node in chain_of}))
    return chains, families


def _forms(
    graph: WorkloadGraph, chain: list[int], facts: list[OpFacts], keys: list[Key], rank: int
) -> tuple[Form, ...]:
    """How a chain may run with some of its members, next to each other, as one."""
    items = [graph[node].communication for node in chain]
    groups = [item.groups for item in items if item is not None and item.groups is not None]
    same = {(one.bytes, one.dtype) for one in facts}
    if not 1 < len(chain) == len(groups) <= _LONGEST or len(same) > 1:
        return ()
    if len({item.reduction for item in items if item is not None}) > 1:
        return ()
    found: list[Form] = []
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
    """The ranks whose values meet in a chain; () if some would meet twice."""
    ranks = [rank]
    for group in reversed(groups):
        ranks = [one for other in ranks for one in group.members(other).tolist()]
    return tuple(sorted(ranks)) if len(set(ranks)) == len(ranks) else ()


def _sums(
    graph: WorkloadGraph, nodes: set[int]
) -> tuple[dict[int, frozenset[int]], list[set[int]], Counter[int]]:
    """All-reduces before each value, families of those that are added up, and their readers."""
    behind: dict[int, frozenset[int]] = {}
    family: dict[int, set[int]] = {node: {node} for node in nodes}
    readers: Counter[int] = Counter()
    made = graph.inputs
    handed_on = renames(graph).tolist()
    for index in range(len(graph)):
        first, last = graph.operand_ptr[index : index + 2]
        operands = graph.operand[first:last].tolist()
        value = made + int(graph.result_ptr[index])
        found = [behind[operand] for operand in operands if operand in behind]
        if index in nodes:
            readers.update(one for one in frozenset().union(*found))
            behind[value] = frozenset((index,))
        elif graph.kind[index] == NodeKind.COMPUTE and found:
            if handed_on[index]:
                results = range(value, value + len(operands))
                for one, operand in zip(results, operands, strict=True):
                    if operand in behind:
                        behind[one] = behind[operand]
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
