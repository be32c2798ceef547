"""Issuing nodes at other places, as far as their edges allow.

The idea: every node has a key, by default its place; of the nodes whose predecessors are all issued
the one with the lowest key is next.  A key in between two places moves a node there, or as close as
what it waits for, and what waits for it, lets it.

    graph = reissued(graph, {7: 2.5})       # node 7 right after node 2
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np

from flint.graph.graph import WorkloadGraph
from flint.passes.order import predecessors
from flint.passes.permute import permuted


def reissued(graph: WorkloadGraph, keys: Mapping[int, float]) -> WorkloadGraph:
    """``graph`` with its nodes in the order of their keys; bodies stay as they are.

    Args:
        graph: a block in issue order.
        keys: node -> place; nodes that are not named keep their own number.
    """
    waits_for = [set(makers) - {-1} for makers in predecessors(graph)]
    users: list[list[int]] = [[] for _ in range(len(graph))]
    missing = [len(makers) for makers in waits_for]
    for node, makers in enumerate(waits_for):
        for maker in makers:
            users[maker].append(node)
    ready = [(keys.get(node, node), node) for node in range(len(graph)) if not missing[node]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for user in users[node]:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (keys.get(user, user), user))
    return permuted(graph, np.array(order, dtype=np.int64))
