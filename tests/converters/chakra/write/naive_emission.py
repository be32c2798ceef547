"""ET nodes of one rank, worked out node by node from the rules: sets and recursion, no arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

from flint.graph.communication import Communication
from flint.graph.graph import EdgeKind, WorkloadGraph
from flint.graph.unrolling import ABSENT, CHAINED, UNCHAINED
from tests.graph.unrolling.naive import Naive


@dataclass
class Expected:
    """One ET node."""

    type: str
    name: str
    deps: set[int] = field(default_factory=set)
    attributes: dict[str, object] = field(default_factory=dict)


def size_of(item: Communication) -> int:
    return sum(item.result_bytes if item.kind == "recv" else item.operand_bytes)


def members(item: Communication, rank: int) -> list[int]:
    assert item.groups is not None
    for row in item.groups.table().tolist():
        if rank in row:
            return [member for member in row if member >= 0]
    return []


def binomial_tree(size: int) -> dict[int, list[int]]:
    """Children by position: in each round everybody who has the data passes it on."""
    children: dict[int, list[int]] = {0: []}
    distance = 1
    while distance < size:
        for position in list(children):
            if position + distance < size:
                children[position].append(position + distance)
                children[position + distance] = []
        distance *= 2
    return children


def nodes_on(item: Communication, rank: int) -> list[tuple[str, int]]:
    """(type, other rank) of the ET nodes of a communication on a rank."""
    if size_of(item) == 0:
        return []
    if item.permutation is not None:
        to, source = int(item.permutation.target[rank]), int(item.permutation.source[rank])
        if to == rank:
            return [] if item.kind == "recv" else [("COMP", -1)]
        sends = [("SEND", to)] if to >= 0 and item.kind != "recv" else []
        receives = [("RECV", source)] if source >= 0 and item.kind != "send" else []
        return sends + receives
    group = members(item, rank)
    if len(group) < 2:
        return []
    if item.kind != "collective_broadcast":
        return [("COLL", -1)]
    tree = binomial_tree(len(group))
    me = group.index(rank)
    parents = [parent for parent, children in tree.items() if me in children]
    received = [("RECV", group[parent]) for parent in parents]
    return received + [("SEND", group[child]) for child in tree[me]]


def expected_nodes(graph: WorkloadGraph, rank: int) -> list[Expected]:
    items = graph.tables.communications
    on_rank = [nodes_on(item, rank) for item in items]
    presence = []
    for nodes in on_rank:
        kinds = {kind for kind, _ in nodes}
        presence.append(
            CHAINED if kinds & {"COLL", "SEND"} else UNCHAINED if "RECV" in kinds else ABSENT
        )
    program = Naive("own", presence)
    program.run(graph, [None] * graph.inputs)

    found: list[Expected] = []
    places: list[list[int]] = []
    items_of: list[Communication | None] = []
    for owner, node, _ in program.nodes:
        view = owner[node]
        item = view.communication
        items_of.append(item)
        nodes = [("COMP", -1)] if item is None else on_rank[int(owner.detail[node])]
        places.append([])
        for kind, other in nodes:
            places[-1].append(len(found))
            made = Expected(kind, view.op)
            if item is not None and kind != "COMP":
                made.attributes["comm_size"] = size_of(item)
            if kind in ("SEND", "RECV"):
                pair = (rank, other) if kind == "SEND" else (other, rank)
                made.attributes["comm_src"], made.attributes["comm_dst"] = pair
            found.append(made)

    @cache
    def awaited(instance: int, kind: int) -> frozenset[int]:
        """The nodes that an edge of this kind from the instance waits for."""
        mine, item = places[instance], items_of[instance]

        def inherited() -> frozenset[int]:
            return frozenset().union(*(awaited(d, k) for d, k in program.deps[instance]))

        if not mine:
            return inherited()
        if item is None or found[mine[0]].type in ("COMP", "COLL"):
            return frozenset(mine)
        send = [i for i in mine if found[i].type == "SEND"]
        receive = [i for i in mine if found[i].type == "RECV"]
        if item.kind == "collective_permute":
            if kind == EdgeKind.DATA:
                return frozenset(receive)
            if kind == EdgeKind.ORDER:
                return frozenset(send) if send else inherited()
            return frozenset(send + receive)
        if kind == EdgeKind.DATA:
            return frozenset(receive) if receive else inherited()
        return frozenset(send[-1:] or receive)

    chain: int | None = None
    for instance, mine in enumerate(places):
        item = items_of[instance]
        before = chain
        for i in mine:
            kind = found[i].type
            first = i == mine[0]
            is_permute = item is not None and item.kind == "collective_permute"
            takes_data = kind != "RECV" and (first or is_permute)
            takes_order = first or is_permute
            for dep, edge in program.deps[instance]:
                if takes_data if edge == EdgeKind.DATA else takes_order:
                    found[i].deps |= awaited(dep, edge)
            # Further sends of a broadcast follow the first one in the chain.
            is_broadcast = item is not None and item.kind == "collective_broadcast"
            if is_broadcast and kind == "SEND" and i - 1 in mine and found[i - 1].type == "RECV":
                found[i].deps.add(i - 1)
            if kind in ("COLL", "SEND"):
                if chain is not None:
                    found[i].deps.add(chain)
                chain = i
            if kind == "RECV" and before is not None:
                found[i].deps.add(before)
    free = [i for i, node in enumerate(found) if node.type == "COMP" and not node.deps]
    for before, after in pairwise(free):  # one after another: ``write.starts``
        found[after].deps.add(before)
    return found
