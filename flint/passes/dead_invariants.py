"""Removing what is no longer needed: invariants that a loop's body does not read, and their makers.

The idea: when a pass replaces the computation of a body, masks that were passed to the loop for it
remain, made before the loop and alive throughout.  Compilers drop them, operand by operand, and
with them the kernels that make nothing else.  Communications stay, and so do values that were
unread from the beginning.

    graph = without_unneeded(graph)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import Ints, Loop, NodeKind, WorkloadGraph
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.columns import with_bodies
from flint.passes.order_edges import without_nodes


def without_unneeded(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` without invariants that no iteration reads and the kernels that made them."""
    graph = with_bodies(graph, lambda body, _: without_unneeded(body))
    loops = list(graph.loops)
    keep = np.ones(len(graph.operand), dtype=bool)
    for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
        detail = int(graph.detail[node])
        read = _read(loops[detail])
        keep[graph.operand_ptr[node] : graph.operand_ptr[node + 1]] = read
        loops[detail] = with_inputs(loops[detail], read)
    if keep.all():
        return graph
    given_up = graph.operand[~keep]
    counts = np.bincount(row_of_entry(graph.operand_ptr)[keep], minlength=len(graph))
    graph = replace(
        graph,
        loops=tuple(loops),
        operand_ptr=pointer(counts.astype(np.int64)),
        operand=graph.operand[keep],
    )
    return without_nodes(graph, unread(graph, given_up))


def _read(loop: Loop) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which inputs of a body are carried or read, shape [inputs]."""
    read = np.zeros(loop.body.values, dtype=bool)
    read[: loop.carried] = True
    read[loop.body.operand] = True
    read[loop.body.outputs] = True
    return read[: loop.body.inputs]


def with_inputs(loop: Loop, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Loop:
    """A loop whose body has some of its inputs only."""
    body = loop.body
    left = np.concatenate([kept, np.ones(body.values - body.inputs, dtype=bool)])
    value: Ints = np.cumsum(left) - 1
    body = replace(
        body,
        input_type=body.input_type[kept],
        operand=value[body.operand],
        outputs=value[body.outputs],
    )
    return replace(loop, body=body)


def unread(graph: WorkloadGraph, given_up: Ints) -> set[int]:
    """Kernels whose results were dropped and are read nowhere else, and so on."""
    readers = np.bincount(
        np.concatenate([graph.operand, graph.outputs]), minlength=graph.values
    ).tolist()
    left = {int(node) for node in graph.producer[given_up] if node >= 0}
    found: set[int] = set()
    while left:
        node = left.pop()
        low, high = (graph.result_ptr[node : node + 2] + graph.inputs).tolist()
        if node in found or graph.kind[node] != NodeKind.COMPUTE or any(readers[low:high]):
            continue
        found.add(node)
        for value in graph.operands_of(node).tolist():
            readers[value] -= 1
            if graph.producer[value] >= 0:
                left.add(int(graph.producer[value]))
    return found
