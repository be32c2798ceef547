"""Issuing nodes at other places, as far as their edges allow.

The idea: every node has a key, by default its place; of the nodes whose predecessors are all issued
the one with the lowest key is next.  A key in between two places moves a node there, or as close as
what it waits for, and what waits for it, lets it.

    graph = reissued(graph, {7: 2.5})       # node 7 right after node 2
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from flint.graph.graph import WorkloadGraph
from flint.passes.columns import lists, pointer
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


#: The nodes that each node waits for by order edges, with their kinds.
Waits = list[list[tuple[int, int]]]


def waits(graph: WorkloadGraph) -> Waits:
    """What each node of a block waits for by order edges."""
    nodes = lists(graph.order_ptr, graph.order_node)
    kinds = lists(graph.order_ptr, graph.order_kind.astype(np.int64))
    return [list(zip(*pair, strict=True)) for pair in zip(nodes, kinds, strict=True)]


def with_waits(graph: WorkloadGraph, found: Waits) -> WorkloadGraph:
    """``graph`` with other order edges; bodies stay as they are."""
    flat = [edge for item in found for edge in item]
    return replace(
        graph,
        order_ptr=pointer(np.array([len(item) for item in found], dtype=np.int64)),
        order_node=np.array([node for node, _ in flat], dtype=np.int64),
        order_kind=np.array([kind for _, kind in flat], dtype=np.int8),
    )


def without_waits(graph: WorkloadGraph, given_up: Callable[[int, int], bool]) -> WorkloadGraph:
    """``graph`` without some order edges.

    A node that no longer waits for another waits for what that one waits for by order edges: what
    else is on its stream keeps its place.

    Args:
        graph: a block; its bodies stay as they are.
        given_up: whether a node (second) no longer waits for another (first).
    """
    held = waits(graph)
    return with_waits(
        graph, [passed_on(held, node, given_up, keep=False) for node in range(len(graph))]
    )


def passed_on(
    held: Waits, node: int, given_up: Callable[[int, int], bool], *, keep: bool
) -> list[tuple[int, int]]:
    """What a node waits for if what is given up passes on what it waits for itself.

    Args:
        held: of all nodes.
        node: the node.
        given_up: as for ``without_waits``.
        keep: go on waiting for what is given up as well.
    """
    left, seen = held[node][::-1], set(held[node])
    found = []
    while left:
        edge = left.pop()
        gone = given_up(edge[0], node)
        if keep or not gone:
            found.append(edge)
        if gone:
            fresh = [other for other in held[edge[0]] if other not in seen]
            seen.update(fresh)
            left += fresh[::-1]
    return found
