"""Hoisting weight gathers: all-gathers of parameters issued k places, or iterations, earlier.

The idea, outside loops: the i-th weight gather of a block is issued where the (i - k)-th was, the
first k at the front, together with what prepares its operand.  Order edges that held it back from
there are given up, and those of the place it takes hold for it; data edges all stay.

Which gathers: an all-gather whose operand is made from the block's inputs by views, casts, slices
and copies alone; in a loop's body only from invariants and scalars (stacked weights, sliced by the
counter).  Activations come from a product, a reduction or a carried tensor, and are left alone.

    graph = hoist(graph, by=1)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph import Loop, NodeKind, WorkloadGraph
from flint.passes.columns import lists, pointer, with_bodies
from flint.passes.what_if.reissue import reissued
from flint.work import Role

_PREPARING = (Role.ALIAS, Role.GENERATE, Role.ELEMENTWISE, Role.MOVEMENT)


def hoist(graph: WorkloadGraph, *, by: int) -> WorkloadGraph:
    """``graph`` with its weight gathers issued earlier; costs the memory of what is gathered.

    Args:
        graph: at any granularity.
        by: places among the weight gathers of the block.
    """
    return _hoisted(graph, by, None)


def _hoisted(graph: WorkloadGraph, by: int, loop: Loop | None) -> WorkloadGraph:
    graph = with_bodies(graph, lambda body, inside: _hoisted(body, by, inside))
    found = weight_gathers(graph, loop)
    if not found:
        return graph
    gathers = list(found)
    keys: dict[int, float] = {}
    waits = lists(graph.order_ptr, graph.order_node)
    kinds = lists(graph.order_ptr, graph.order_kind.astype(np.int64))
    held = [list(zip(*pair, strict=True)) for pair in zip(waits, kinds, strict=True)]
    edges = [list(item) for item in held]
    for i, gather in enumerate(gathers):
        place = gathers[i - by] if i >= by else -1
        moved = {node for node in found[gather] | {gather} if node > place}
        for node in moved - keys.keys():
            keys[node] = place - 0.5
            edges[node] = [edge for edge in held[node] if edge[0] < place or edge[0] in moved]
        if i >= by:
            edges[gather] = list(dict.fromkeys([*edges[gather], *held[place]]))
    flat = [edge for item in edges for edge in item]
    counts = np.array([len(item) for item in edges], dtype=np.int64)
    graph = replace(
        graph,
        order_ptr=pointer(counts),
        order_node=np.array([node for node, _ in flat], dtype=np.int64),
        order_kind=np.array([kind for _, kind in flat], dtype=np.int8),
    )
    return reissued(graph, keys)


def weight_gathers(graph: WorkloadGraph, loop: Loop | None) -> dict[int, set[int]]:
    """Weight gathers of a block in issue order, each with the nodes that prepare its operand.

    Args:
        graph: the block.
        loop: the loop whose body it is, None for a program or a branch.
    """
    carried = loop.carried if loop is not None else 0
    operands = lists(graph.operand_ptr, graph.operand)
    producer = graph.producer.tolist()
    simple = (np.isin(graph.role, _PREPARING) & (graph.kind == NodeKind.COMPUTE)).tolist()

    def still(value: int) -> bool:
        return value >= carried or graph.type_of(value).shape == ()

    prepared: list[set[int] | None] = []
    found: dict[int, set[int]] = {}
    table = graph.tables.communications
    for node in range(len(graph)):
        before: set[int] | None = set()
        for value in operands[node]:
            maker = producer[value]
            made = prepared[maker] if maker >= 0 else (set() if still(value) else None)
            if made is None:
                before = None
                break
            assert before is not None
            before |= made
        prepared.append(before | {node} if before is not None and simple[node] else None)
        gathers = graph.kind[node] == NodeKind.COMMUNICATION
        if gathers and before is not None and table[int(graph.detail[node])].kind == "all_gather":
            found[node] = before
    return found
