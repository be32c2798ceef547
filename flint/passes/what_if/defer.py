"""Deferring reduce-scatters: gradients are reduced later, so that other communication goes first.

The idea: the i-th gradient reduction of a block is issued right after the (i + k)-th one's place,
or at the end of the block, unless somebody needs it: readers wait and move along.  A gradient
reduction is a reduce-scatter from which no matrix product of its block follows; activations' are
left alone.  No reduction leaves its block, so none passes the end of a loop's iteration.

    graph = defer(graph, by=2)
"""

from __future__ import annotations

import numpy as np

from flint.graph import NodeKind, WorkloadGraph
from flint.passes.columns import with_bodies
from flint.passes.order import predecessors
from flint.passes.what_if.reissue import reissued
from flint.work import Unit


def defer(graph: WorkloadGraph, *, by: int) -> WorkloadGraph:
    """``graph`` with gradient reductions issued later; costs the memory of their operands.

    Args:
        graph: at any granularity.
        by: how many places among the gradient reductions of its block.
    """
    graph = with_bodies(graph, lambda body, _: defer(body, by=by))
    found = _gradient_reductions(graph)
    keys = {}
    for i, node in enumerate(found):
        place = found[i + by] + 0.5 if i + by < len(found) else len(graph)
        # Reductions that go to one place keep their order.
        keys[node] = place + i / (4 * len(found) + 4)
    return reissued(graph, keys) if keys else graph


def _gradient_reductions(graph: WorkloadGraph) -> list[int]:
    multiplies = np.zeros(len(graph), dtype=bool)
    owner = np.repeat(np.arange(len(graph)), np.diff(graph.work_ptr))
    multiplies[owner[graph.work_unit == Unit.MATMUL]] = True
    leads = (multiplies | (graph.kind >= NodeKind.LOOP)).tolist()
    makers = predecessors(graph)
    for node in range(len(graph) - 1, -1, -1):
        if leads[node]:
            for maker in makers[node]:
                if maker >= 0:
                    leads[maker] = True
    table = graph.tables.communications
    return [
        int(node)
        for node in np.flatnonzero(graph.kind == NodeKind.COMMUNICATION)
        if table[int(graph.detail[node])].kind == "reduce_scatter" and not leads[node]
    ]
