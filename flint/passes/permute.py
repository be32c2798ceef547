"""Renumbering: a graph with its nodes in another order, or with some of them only.

The idea: nodes are numbered in issue order, so another order is a permutation of all columns;
values follow their producers.

    graph = permuted(graph, np.argsort(key, kind="stable"))
    graph = select_nodes(graph, np.flatnonzero(kept))
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import NODE_COLUMNS, WORK_COLUMNS, Ints, WorkloadGraph
from flint.passes.columns import gathered, take_rows


def permuted(graph: WorkloadGraph, order: Ints) -> WorkloadGraph:
    """``graph`` with node ``order[i]`` in place ``i``; bodies stay as they are.

    Args:
        graph: what to renumber.
        order: every node once, shape [nodes]; edges must point forward in it.
    """
    if np.array_equal(order, np.arange(len(graph))):
        return graph
    return select_nodes(graph, order)


def select_nodes(graph: WorkloadGraph, order: Ints) -> WorkloadGraph:
    """The nodes ``order`` of ``graph``, in this order; bodies stay as they are.

    Args:
        graph: the graph to take from.
        order: nodes, each at most once; edges among them must point forward, and neither these
            nodes nor the outputs may need omitted ones.
    """
    position = np.full(len(graph), -1, dtype=np.int64)
    position[order] = np.arange(len(order))
    result_ptr, results = take_rows(graph.result_ptr, order)
    value = np.full(graph.values, -1, dtype=np.int64)
    value[: graph.inputs] = np.arange(graph.inputs)
    value[graph.inputs + results] = graph.inputs + np.arange(len(results))
    operand_ptr, operands = take_rows(graph.operand_ptr, order)
    order_ptr, edges = take_rows(graph.order_ptr, order)
    work_ptr, items = take_rows(graph.work_ptr, order)
    return replace(
        graph,
        **gathered(graph, NODE_COLUMNS, order),
        **gathered(graph, WORK_COLUMNS, items),
        result_ptr=result_ptr,
        result_type=graph.result_type[results],
        operand_ptr=operand_ptr,
        operand=value[graph.operand[operands]],
        order_ptr=order_ptr,
        order_node=position[graph.order_node[edges]],
        order_kind=graph.order_kind[edges],
        work_ptr=work_ptr,
        outputs=value[graph.outputs],
    )
