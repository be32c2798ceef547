"""Copying nodes from a graph into a builder, for passes that add others.

copy_node(builder, graph, node, operands, order, made)
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph
from flint.passes.columns import lists

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


def rebuilt(
    graph: WorkloadGraph,
    tables: TableBuilder,
    replaced: Container[int],
    replace: Callable[[GraphBuilder, int, list[int], Edges], Sequence[int]],
) -> WorkloadGraph:
    """A copy in which other nodes stand in the places of some.

    Args:
        graph: the graph.
        tables: of the copy; they begin with the graph's.
        replaced: the nodes to replace.
        replace: given the builder, a node, its operands and what it waits for; adds others, of
            which the last one ends last, and returns as many results as the node has.
    """
    builder = GraphBuilder(tables)
    made = {i: builder.input(kind) for i, kind in enumerate(graph.input_type.tolist())}
    place: list[int] = []
    operands = lists(graph.operand_ptr, graph.operand)
    for node in range(len(graph)):
        order = [(place[before], kind) for before, kind in order_of(graph, node)]
        taken = [made[value] for value in operands[node]]
        if node in replaced:
            results = replace(builder, node, taken, order)
            low, high = (graph.result_ptr[node : node + 2] + graph.inputs).tolist()
            made.update(zip(range(low, high), results, strict=True))
        else:
            copy_node(builder, graph, node, taken, order, made)
        place.append(len(builder) - 1)
    return builder.finish([made[value] for value in graph.outputs.tolist()])
