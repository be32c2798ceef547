"""Which updates may overwrite their operand, once the order is known.

The idea: a dynamic_update_slice or scatter moves little if it writes into its operand's buffer
(``bytes_aliased``), and may do so only if the old content is not needed afterwards.

- Every other reader of the operand comes earlier in issue order: an order edge makes each of them
  finish before the update writes (write after read).
- A reader comes later, or the value is needed after the graph (it is an output, a loop's invariant
  that the next iteration reads again, a constant): the update works on a copy.  The bytes that were
  shared are read and written instead, so that total bytes grow; work items stay.

Constants, iotas and broadcasts are no buffers for readers that can make them again
(``flint.passes.rematerialize``): these neither wait nor cost a copy.

A program's own inputs may be overwritten: those that are not donated have been copied when the
program was made (``flint.passes.copy_insertion``).

    read = x[0];  x' = update(x, ...)      gets the order edge      read -> update
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import Loop, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.buffers import buffer_of, constants, overwritten, readers_of
from flint.passes.columns import with_bodies
from flint.passes.order_edges import with_more_edges
from flint.passes.rematerialize import can_make_itself, transparent_nodes


def resolve_updates(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` in issue order with its updates in place or on copies, in bodies too."""
    return _resolve(graph, None)


def _resolve(graph: WorkloadGraph, loop: Loop | None) -> WorkloadGraph:
    graph = with_bodies(graph, _resolve)
    in_place = (graph.role == Role.UPDATE) & (graph.kind == NodeKind.COMPUTE)
    updates = np.flatnonzero(in_place & (graph.bytes_aliased > 0)).tolist()
    if not updates:
        return graph
    buffer = buffer_of(graph)
    buffers = {node: buffer[graph.operand[overwritten(graph, node)]].tolist() for node in updates}
    wanted = [value for values in buffers.values() for value in values]
    makers = graph.producer[graph.operand]
    through = (makers >= 0) & transparent_nodes(graph)[makers] & can_make_itself(graph)
    readers = readers_of(graph, np.where(through, -1, buffer[graph.operand]), wanted)
    kept = set(buffer[graph.outputs].tolist()) | constants(graph)
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
