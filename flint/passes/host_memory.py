"""Values in the host's memory, and the device's cost of work on them.

The idea: a value gets to the host by one transfer and back by another (``MoveToHost``,
``MoveToDevice``).  In between it is only stored: sliced, updated, renamed, carried by loops, joined
by barriers.  A buffer that a loop fills row by row with such values is on the host from the
beginning, as in XLA's host offloader.  None of that work runs on the device.

    at = placed(graph)                  # at.values[v]: value v is on the host
    graph = with_host_buffers(graph)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.joins import renames
from flint.graph.transfers import has_transfers, transfers
from flint.graph.work import Role

#: Ops that a host buffer passes through.
_STORES: Final = (
    "bitcast_convert", "broadcast_in_dim", "copy", "dynamic_slice", "dynamic_update_slice",
    "mhlo.copy", "reshape", "slice", "transpose",
)  # fmt: skip

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class Placed:
    """Where values are.

    Attributes:
        values: whether each one is on the host, shape [values].
        bodies: the same for each loop of the graph's table.
    """

    values: Mask
    bodies: tuple[Placed | None, ...]


def placed(graph: WorkloadGraph, inputs: Mask | None = None) -> Placed | None:
    """Where the values of a block are; None: all on the device.

    Args:
        graph: a block.
        inputs: which of its inputs are on the host; None for a program: those that it copies from
            there.
    """
    if not has_transfers(graph):
        return None
    at = np.zeros(graph.values, np.bool_)
    at[: graph.inputs] = _needed_there(graph) if inputs is None else inputs
    way, renaming, stores = transfers(graph), renames(graph), _stores(graph)
    readers = np.bincount(graph.operand, minlength=graph.values)
    readers[graph.outputs] += 1
    bodies: list[Placed | None] = [None] * len(graph.loops)
    for node in range(len(graph)):
        operands = graph.operands_of(node)
        first, last = (graph.result_ptr[node : node + 2] + graph.inputs).tolist()
        if way[node]:
            at[first:last] = way[node] < 0
        elif graph.kind[node] == NodeKind.LOOP:
            number = int(graph.detail[node])
            inside, given = _loop(graph, number, at[operands])
            bodies[number] = inside
            carried = graph.loops[number].carried
            at[first:last] = given[: last - first]
            # A buffer that only the loop fills is on the host from the beginning.
            own = operands[:carried][given[:carried]]
            at[own[readers[own] == 1]] = True
        elif renaming[node]:
            at[first:last] = at[operands[: last - first]]
        elif stores[node] and len(operands):
            at[first:last] = at[operands[:2]].any()
    return Placed(at, tuple(bodies))


def _stores(graph: WorkloadGraph) -> Mask:
    """Nodes that leave a value where it is, shape [nodes]."""
    named = np.isin(np.array([*graph.tables.ops, ""]), _STORES)[graph.op]
    found: Mask = named & (graph.kind == NodeKind.COMPUTE)
    return found


def _needed_there(graph: WorkloadGraph) -> Mask:
    """Inputs of a block that are copied from the host to the device, shape [inputs]."""
    needed = np.zeros(graph.values, np.bool_)
    way, renaming, stores = transfers(graph), renames(graph), _stores(graph)
    for node in range(len(graph) - 1, -1, -1):
        operands = graph.operands_of(node)
        first, last = (graph.result_ptr[node : node + 2] + graph.inputs).tolist()
        if way[node] > 0:
            needed[operands] = True
        elif graph.kind[node] == NodeKind.LOOP:
            needed[operands] |= _needed_there(graph.loop_of(node).body)
        elif renaming[node]:
            needed[operands] |= needed[first:last]
        elif stores[node] and needed[first:last].any():
            needed[operands[:1]] = True
    return needed[: graph.inputs]


def _loop(graph: WorkloadGraph, number: int, given: Mask) -> tuple[Placed | None, Mask]:
    """A loop's body, and which of its operands are on the host, including those that it fills."""
    loop = graph.loops[number]
    given = given.copy()
    while True:
        inside = placed(loop.body, given)
        if inside is None:
            return None, given
        carried = given[: loop.carried] | inside.values[loop.body.outputs[: loop.carried]]
        if (carried == given[: loop.carried]).all():
            return inside, given
        given[: loop.carried] = carried


def with_host_buffers(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` whose work on the host's buffers costs the device nothing."""
    at = placed(graph)
    return graph if at is None else _with_host_buffers(graph, at)


def _with_host_buffers(graph: WorkloadGraph, at: Placed) -> WorkloadGraph:
    loops = tuple(
        loop if inside is None else replace(loop, body=_with_host_buffers(loop.body, inside))
        for loop, inside in zip(graph.loops, at.bodies, strict=True)
    )
    way = transfers(graph)
    stored = np.zeros(len(graph), np.bool_)
    for node in np.flatnonzero((graph.kind == NodeKind.COMPUTE) & (way == 0)).tolist():
        results = at.values[slice(*(graph.result_ptr[node : node + 2] + graph.inputs).tolist())]
        stored[node] = len(results) > 0 and results.all()
    nothing = np.where(stored, 0, 1)
    return replace(
        graph,
        loops=loops,
        role=np.where(stored & (graph.role != Role.ALIAS), Role.OPAQUE, graph.role).astype(
            graph.role.dtype
        ),
        bytes_read=graph.bytes_read * nothing,
        bytes_written=graph.bytes_written * nothing,
        bytes_aliased=graph.bytes_aliased * nothing,
    )
