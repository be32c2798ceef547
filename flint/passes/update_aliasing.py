"""Which updates may overwrite their operand, now that the order is known.

The idea: a dynamic_update_slice or scatter moves little when it writes into its operand's buffer
(``bytes_aliased``), and may do so only if the old contents are not needed afterwards.

- Every other reader of the operand comes earlier in issue order: an order edge makes each of them
  finish before the update writes (write after read).
- A reader comes later, or the value is needed after the graph (it is an output, a loop's invariant
  that the next iteration reads again, a constant): the update works on a copy.  The bytes that were
  shared are read and written instead, so that total bytes grow; work items stay.

A program's own inputs may be donated to its outputs; they count as free to overwrite.

    read = x[0];  x' = update(x, ...)      gets the order edge      read -> update
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import Ints, Loop, NodeKind, WorkloadGraph
from flint.graph.joins import renames
from flint.graph.work import Role
from flint.passes.columns import row_of_entry, with_bodies
from flint.passes.order_edges import with_more_edges


def resolve_updates(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` in issue order with its updates in place or on copies, in bodies too."""
    return _resolve(graph, None)


def _resolve(graph: WorkloadGraph, loop: Loop | None) -> WorkloadGraph:
    graph = with_bodies(graph, _resolve)
    in_place = (graph.role == Role.UPDATE) & (graph.kind == NodeKind.COMPUTE)
    updates = np.flatnonzero(in_place & (graph.bytes_aliased > 0)).tolist()
    if not updates:
        return graph
    buffer = _buffer_of(graph)
    buffers = {node: buffer[_overwritten(graph, node)].tolist() for node in updates}
    readers = _readers(graph, buffer, [value for values in buffers.values() for value in values])
    kept = set(buffer[graph.outputs].tolist()) | _constants(graph)
    if loop is not None:
        kept.update(range(loop.carried, graph.inputs))
    read, written = graph.bytes_read.copy(), graph.bytes_written.copy()
    aliased = graph.bytes_aliased.copy()
    edges: list[tuple[int, int]] = []
    for node in updates:
        values = buffers[node]
        reads = [reader for value in values for reader in readers[value]]
        others = set(reads) - {node}
        read_twice = reads.count(node) > len(values)
        if kept.intersection(values) or read_twice or max(others, default=-1) > node:
            read[node] += aliased[node]
            written[node] += aliased[node]
            aliased[node] = 0
        else:
            edges.extend((node, reader) for reader in others - graph.predecessors(node))
    graph = replace(graph, bytes_read=read, bytes_written=written, bytes_aliased=aliased)
    return with_more_edges(graph, edges)


def _overwritten(graph: WorkloadGraph, node: int) -> Ints:
    """The operands that an update overwrites: its first ones, as many as it has results."""
    first = int(graph.operand_ptr[node])
    return graph.operand[first : first + int(graph.result_ptr[node + 1] - graph.result_ptr[node])]


def _buffer_of(graph: WorkloadGraph) -> Ints:
    """The value whose buffer each value is a view of (itself where it is none), shape [values]."""
    buffer = np.arange(graph.values, dtype=np.int64)
    renaming = renames(graph)
    views = (graph.bytes_aliased > 0) & (graph.role != Role.UPDATE)
    views &= (np.diff(graph.operand_ptr) > 0) & (np.diff(graph.result_ptr) == 1)
    for node in np.flatnonzero(views | renaming).tolist():
        first, last = graph.result_ptr[node : node + 2] + graph.inputs
        start = graph.operand_ptr[node]
        buffer[first:last] = buffer[graph.operand[start : start + last - first]]
    return buffer


def _readers(graph: WorkloadGraph, buffer: Ints, wanted: list[int]) -> dict[int, list[int]]:
    """Nodes that read each of the buffers ``wanted``, under any name, as often as they do."""
    readers: dict[int, list[int]] = {value: [] for value in wanted}
    read = buffer[graph.operand]
    entries = np.flatnonzero(np.isin(read, wanted))
    for value, node in zip(read[entries].tolist(), graph.consumer[entries].tolist(), strict=True):
        readers[value].append(node)
    return readers


def _constants(graph: WorkloadGraph) -> set[int]:
    """Values that stand in memory already: made from nothing and never written."""
    constant = (graph.role == Role.GENERATE) & (graph.bytes_written == 0)
    made = np.flatnonzero(constant[row_of_entry(graph.result_ptr)]) + graph.inputs
    return set(made.tolist())
