"""Which values share a buffer, which nodes read it, and which values are in memory permanently.

The idea: a view is another name for its operand's buffer, so readers of the view read the buffer.
These readers decide what may be overwritten.

    readers = readers_of(graph, buffer_of(graph)[graph.operand], [value])
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from flint.graph.graph import Ints, WorkloadGraph
from flint.graph.joins import renames
from flint.graph.work import Role
from flint.mesh.ragged import row_of_entry


def buffer_of(graph: WorkloadGraph) -> Ints:
    """The value whose buffer each value is a view of (itself if it is not a view), shape
    [values].
    """
    buffer = np.arange(graph.values, dtype=np.int64)
    operands = np.diff(graph.operand_ptr)
    views = (graph.bytes_aliased > 0) & (graph.role != Role.UPDATE)
    views |= (graph.role == Role.ALIAS) & (operands == 1)
    views &= (operands > 0) & (np.diff(graph.result_ptr) == 1)
    for node in np.flatnonzero(views | renames(graph)).tolist():
        first, last = (graph.result_ptr[node : node + 2] + graph.inputs).tolist()
        start = int(graph.operand_ptr[node])
        buffer[first:last] = buffer[graph.operand[start : start + last - first]]
    return buffer


def readers_of(graph: WorkloadGraph, read: Ints, wanted: Iterable[int]) -> dict[int, list[int]]:
    """Nodes that read each of the buffers ``wanted``, once per read.

    Args:
        graph: the graph.
        read: the buffer that each operand entry reads, -1 if none, shape [operands].
        wanted: buffers.
    """
    readers: dict[int, list[int]] = {value: [] for value in wanted}
    entries = np.flatnonzero(np.isin(read, list(readers)))
    for value, node in zip(read[entries].tolist(), graph.consumer[entries].tolist(), strict=True):
        readers[value].append(node)
    return readers


def constants(graph: WorkloadGraph) -> set[int]:
    """Values that are in memory already: made from nothing and never written."""
    constant = (graph.role == Role.GENERATE) & (graph.bytes_written == 0)
    made = np.flatnonzero(constant[row_of_entry(graph.result_ptr)]) + graph.inputs
    return set(made.tolist())


def overwritten(graph: WorkloadGraph, node: int) -> slice:
    """The operand entries that an update overwrites: the first ones, as many as it has results."""
    first = int(graph.operand_ptr[node])
    return slice(first, first + int(graph.result_ptr[node + 1] - graph.result_ptr[node]))
