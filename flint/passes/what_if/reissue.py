"""Issuing nodes at other positions, as far as their edges allow.

The idea: every node has a key, by default its position; the next node is the one with the lowest
key among those whose predecessors have all been issued.  A key between two positions moves a node
there, or as close as its dependencies and dependents allow.

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
        keys: node -> position; other nodes keep their own number.
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
