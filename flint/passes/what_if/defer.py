"""Deferring reduce-scatters: gradients are reduced later, so that other communication goes first.

The idea: the i-th gradient reduction of a block is issued right after the position of the (i +
k)-th one, or at the end of the block, unless another node needs it: readers wait and move along.  A
node that is issued up to that position and only waits for the reduction or its readers, because it
is on their stream or waits for their event, waits for what they waited for in this way.  A gradient
reduction is a reduce-scatter whose result no matrix product and no message of its block depends on;
those of activations are not moved.  No reduction leaves its block, so none passes the end of a
loop's iteration.

    graph = defer(graph, by=2)
"""

from __future__ import annotations

import numpy as np

from flint.graph.communication import POINT_TO_POINT
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.joins import through_joins
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry
from flint.passes.columns import lists, with_bodies
from flint.passes.order_edges import without_waits
from flint.passes.what_if.reissue import reissued


def defer(graph: WorkloadGraph, *, by: int) -> WorkloadGraph:
    """``graph`` with gradient reductions issued later; costs the memory of their operands.

    Args:
        graph: at any granularity.
        by: number of positions among the gradient reductions of its block.
    """
    graph = with_bodies(graph, lambda body, _: defer(body, by=by))
    found = gradient_reductions(graph)
    readers = _readers(graph)
    keys = {}
    # The position until which each reduction, and what depends on it, delays nothing.
    until = np.full(len(graph), -1, dtype=np.int64)
    for i, node in enumerate(found):
        place = found[i + by] if i + by < len(found) else len(graph)
        # Reductions that move to the same position keep their order.
        keys[node] = place + 0.5 + i / (4 * len(found) + 4)
        along = list(_following(node, place, readers))
        until[along] = np.maximum(until[along], place)
    if not keys:
        return graph
    freed = without_waits(graph, lambda before, node: node <= until[before] and until[node] < 0)
    return reissued(freed, keys)


def _readers(graph: WorkloadGraph) -> list[list[int]]:
    """Nodes that read what each node makes."""
    found: list[list[int]] = [[] for _ in range(len(graph))]
    for maker, reader in zip(
        graph.producer[graph.operand].tolist(), graph.consumer.tolist(), strict=True
    ):
        if maker >= 0:
            found[maker].append(reader)
    return found


def _following(node: int, end: int, readers: list[list[int]]) -> set[int]:
    """A node and the nodes that depend on it, issued before ``end``."""
    seen, left = {node}, [node]
    while left:
        for reader in readers[left.pop()]:
            if reader < end and reader not in seen:
                seen.add(reader)
                left.append(reader)
    return seen


def gradient_reductions(graph: WorkloadGraph) -> list[int]:
    """Reduce-scatters of a block whose result no product and no message of it depends on."""
    multiplies = np.zeros(len(graph), dtype=bool)
    owner = row_of_entry(graph.work_ptr)
    multiplies[owner[graph.work_unit == Unit.MATMUL]] = True
    leads = (multiplies | (graph.kind >= NodeKind.LOOP)).tolist()
    table = graph.tables.communications
    communicates = np.flatnonzero(graph.kind == NodeKind.COMMUNICATION).tolist()
    for node in communicates:
        leads[node] = table[int(graph.detail[node])].kind in POINT_TO_POINT
    makers = lists(graph.operand_ptr, graph.producer[through_joins(graph).operand])
    for node in range(len(graph) - 1, -1, -1):
        if leads[node]:
            for maker in makers[node]:
                if maker >= 0:
                    leads[maker] = True
    return [
        node
        for node in communicates
        if table[int(graph.detail[node])].kind == "reduce_scatter" and not leads[node]
    ]
