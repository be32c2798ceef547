"""Removing ops that only rename a buffer.

The idea: reshape, bitcast, copies that MHLO inserts and tuple ops compute and move nothing, so no
kernel and no edge of an execution trace should represent them.  Consumers of such an op consume its
operand instead.

    reshape: %1 = reshape %0;  %2 = add %1, %1      becomes      %2 = add %0, %0

These stay: an ALIAS op with different numbers of results and operands (``tuple``, ``after_all``),
or whose result has another size than its operand (an element of a tuple that was not opened); and a
join (``flint.passes.joins``) of several nodes' values, because its results wait for all of them.

Order edges are not lost: consumers of the removed op's result also wait for what the op waited for,
and nodes that waited for the op wait for the producers of its operands.  If these are not nodes of
this block, the op stays: it waits for something and its value goes to an output or into a body, or
something waits for it and its operand is an input or comes out of a body.

``ops_merged`` of a removed op is not added to another node: it belongs to no kernel.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.joins import behind, joins, renames
from flint.mesh.ragged import row_of_entry
from flint.passes.columns import take_rows, with_bodies
from flint.passes.order_edges import Waits, with_waits
from flint.passes.permute import select_nodes


def resolve_aliases(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` without its pass-through ops, in bodies too."""
    graph = with_bodies(graph, lambda body, _: resolve_aliases(body))
    removed = _pass_through(graph)
    if not removed.any():
        return graph
    stands_for = behind(graph, removed)
    if (removed[graph.order_node] | removed[row_of_entry(graph.order_ptr)]).any():
        graph = _inherit_order(graph, removed)
    operand, outputs = stands_for[graph.operand], stands_for[graph.outputs]
    return select_nodes(replace(graph, operand=operand, outputs=outputs), np.flatnonzero(~removed))


def _pass_through(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Which nodes only rename their operands, shape [nodes]."""
    named = renames(graph)
    joining = joins(graph)
    named &= ~joining | _of_one_node(graph, joining)
    waits = named & (np.diff(graph.order_ptr) > 0)
    if waits.any():
        named &= ~(waits & _escaping(graph, named))
    awaited = np.zeros(len(graph), dtype=bool)
    awaited[graph.order_node] = True
    awaited &= named
    if awaited.any():
        named &= ~(awaited & _entering(graph, named))
    return named


def _of_one_node(graph: WorkloadGraph, joining: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the nodes ``joining`` take all their operands from one node, shape [nodes].

    A loop's results are made by different nodes of its body; an input's maker is unknown.
    """
    alone = joining.copy()
    nodes = np.flatnonzero(joining)
    ptr, entries = take_rows(graph.operand_ptr, nodes)
    maker = graph.producer[graph.operand[entries]]
    row = row_of_entry(ptr)
    other = (maker != maker[ptr[:-1]][row]) | (maker < 0) | (graph.kind[maker] >= NodeKind.LOOP)
    alone[nodes[row[other]]] = False
    return alone


def _escaping(graph: WorkloadGraph, named: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Nodes of ``named`` with a value that leaves the block, under any name."""
    leaves = np.zeros(graph.values, dtype=bool)
    leaves[graph.outputs] = True
    leaves[graph.operand[graph.kind[graph.consumer] >= NodeKind.LOOP]] = True
    escaping = np.zeros(len(graph), dtype=bool)
    for node in np.flatnonzero(named)[::-1].tolist():
        first, last = graph.result_ptr[node : node + 2] + graph.inputs
        operands = graph.operands_of(node)
        leaves[operands] |= leaves[first:last]
        escaping[node] = leaves[first:last].any()
    return escaping


def _entering(graph: WorkloadGraph, named: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Nodes of ``named`` with an operand that enters the block, under any name."""
    given = graph.producer < 0
    given |= graph.kind[graph.producer] >= NodeKind.LOOP
    entering = np.zeros(len(graph), dtype=bool)
    for node in np.flatnonzero(named).tolist():
        first, last = graph.result_ptr[node : node + 2] + graph.inputs
        operands = graph.operands_of(node)
        given[first:last] = given[operands]
        entering[node] = given[operands].any()
    return entering


def _inherit_order(graph: WorkloadGraph, removed: NDArray[np.bool_]) -> WorkloadGraph:
    """``graph`` with the order edges of removed nodes moved to those that stay."""
    producer, operand, gone = graph.producer.tolist(), graph.operand.tolist(), removed.tolist()
    operand_ptr, order_ptr = graph.operand_ptr.tolist(), graph.order_ptr.tolist()
    order_node, order_kind = graph.order_node.tolist(), graph.order_kind.tolist()
    # For a removed node: what its consumers wait for besides its values, and what replaces it.
    held: dict[int, dict[tuple[int, int], None]] = {}
    done: dict[int, list[int]] = {}
    waits: Waits = [[] for _ in range(len(graph))]
    for node in range(len(graph)):
        edges: dict[tuple[int, int], None] = {}
        for j in range(order_ptr[node], order_ptr[node + 1]):
            before = order_node[j]
            for each in done[before] if gone[before] else (before,):
                edges[each, order_kind[j]] = None
        makers = {producer[operand[j]] for j in range(operand_ptr[node], operand_ptr[node + 1])}
        makers.discard(-1)
        for maker in makers:
            if gone[maker]:
                edges |= held[maker]
        if gone[node]:
            held[node] = edges
            through = [each for maker in makers if gone[maker] for each in done[maker]]
            real = [maker for maker in makers if not gone[maker]]
            done[node] = sorted({*through, *real, *(each for each, _ in edges)})
        else:
            waits[node] = list(edges)
    return with_waits(graph, waits)
