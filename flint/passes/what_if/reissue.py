"""Issuing nodes at other places, as far as their edges allow.

The idea: every node has a key, by default its place; of the nodes whose predecessors are all issued
the one with the lowest key is next.  A key in between two places moves a node there, or as close as
what it waits for, and what waits for it, lets it.

    graph = reissued(graph, {7: 2.5})       # node 7 right after node 2
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flint.graph.graph import WorkloadGraph
from flint.graph.ready_order import ready_order
from flint.passes.order import predecessors
from flint.passes.permute import permuted


def reissued(graph: WorkloadGraph, keys: Mapping[int, float]) -> WorkloadGraph:
    """``graph`` with its nodes in the order of their keys; bodies stay as they are.

    Args:
        graph: a block in issue order.
        keys: node -> place; nodes that are not named keep their own number.
    """
    pairs = [
        (maker, node)
        for node, makers in enumerate(predecessors(graph))
        for maker in makers
        if maker >= 0
    ]
    before, after = np.array(pairs, np.int64).reshape(-1, 2).T
    order = ready_order([keys.get(node, node) for node in range(len(graph))], before, after)
    return permuted(graph, np.array(order, dtype=np.int64))
