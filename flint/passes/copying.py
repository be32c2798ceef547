"""Copying nodes from a graph into a builder, for passes that add others.

copy_node(builder, graph, node, operands, order, made)
"""

from __future__ import annotations

from collections.abc import Iterable

from flint.graph.building import GraphBuilder
from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph

#: Nodes that come first, and why.
Edges = list[tuple[int, EdgeKind]]


def order_of(graph: WorkloadGraph, node: int) -> Edges:
    """What a node waits for by order edges."""
    row = slice(int(graph.order_ptr[node]), int(graph.order_ptr[node + 1]))
    kinds = [EdgeKind(kind) for kind in graph.order_kind[row].tolist()]
    return list(zip(graph.order_node[row].tolist(), kinds, strict=True))


def copy_node(
    builder: GraphBuilder,
    graph: WorkloadGraph,
    node: int,
    operands: Iterable[int],
    order: Edges,
    made: dict[int, int],
) -> None:
    """Copy a node and enter its results into ``made``.

    Args:
        builder: takes the copy; its tables begin with the graph's.
        graph, node: the node to copy.
        operands: operands of the copy.
        order: what the copy waits for.
        made: value of the graph -> value of the builder.
    """
    kind, detail = NodeKind(int(graph.kind[node])), int(graph.detail[node])
    if kind == NodeKind.LOOP:
        builder.loops.append(graph.loops[detail])
        detail = len(builder.loops) - 1
    low, high = graph.result_ptr[node : node + 2].tolist()
    results = builder.node(
        kind,
        int(graph.op[node]),
        operands,
        graph.result_type[low:high].tolist(),
        role=int(graph.role[node]),
        work=graph[node].work,
        detail=detail,
        source=int(graph.source[node]),
        ops_merged=int(graph.ops_merged[node]),
        order=order,
    )
    made.update(zip(range(graph.inputs + low, graph.inputs + high), results, strict=True))
