"""Reading and changing order edges: what each node waits for without using its value.

Passes that decide node by node work on lists (``waits``, ``with_waits``); passes that compute edges
as columns set them as a whole (``with_edges``).

    graph = without_waits(graph, lambda before, node: before in given_up)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import EdgeKind, Ints, WorkloadGraph
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.columns import lists
from flint.passes.permute import select_nodes

#: The nodes that each node waits for by order edges, with their kinds.
Waits = list[list[tuple[int, int]]]


def with_edges(
    graph: WorkloadGraph, after: Ints, before: Ints, kind: NDArray[np.int8]
) -> WorkloadGraph:
    """``graph`` with these order edges instead of its own; bodies stay as they are.

    Args:
        graph: a block.
        after, before: node ``after[i]`` waits for node ``before[i]``; edges of one node keep their
            order, shape [edges].
        kind: ``EdgeKind``, shape [edges].
    """
    order = np.argsort(after, kind="stable")
    return replace(
        graph,
        order_ptr=pointer(np.bincount(after, minlength=len(graph))),
        order_node=before[order],
        order_kind=kind[order].astype(np.int8),
    )


def with_more_edges(graph: WorkloadGraph, edges: list[tuple[int, int]]) -> WorkloadGraph:
    """``graph`` with more order edges, given as (waiting node, awaited node)."""
    if not edges:
        return graph
    added = np.array(sorted(edges), dtype=np.int64)
    return with_edges(
        graph,
        np.concatenate([row_of_entry(graph.order_ptr), added[:, 0]]),
        np.concatenate([graph.order_node, added[:, 1]]),
        np.concatenate([graph.order_kind, np.full(len(added), EdgeKind.ORDER, np.int8)]),
    )


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

    A node that no longer waits for another waits for what that one waits for by order edges, so
    that other nodes on its stream keep their place.

    Args:
        graph: a block; its bodies stay as they are.
        given_up: whether a node (second) no longer waits for another (first).
    """
    held = waits(graph)
    return with_waits(
        graph, [passed_on(held, node, given_up, keep=False) for node in range(len(graph))]
    )


def without_nodes(graph: WorkloadGraph, gone: set[int]) -> WorkloadGraph:
    """``graph`` without some nodes; nodes that waited for them wait for what they waited for."""
    if not gone:
        return graph
    kept = [node for node in range(len(graph)) if node not in gone]
    freed = without_waits(graph, lambda before, _: before in gone)
    return select_nodes(freed, np.array(kept, dtype=np.int64))


def passed_on(
    held: Waits, node: int, given_up: Callable[[int, int], bool], *, keep: bool
) -> list[tuple[int, int]]:
    """What a node waits for if removed waits are replaced by the waits of the awaited node.

    Args:
        held: waits of all nodes.
        node: the node.
        given_up: as for ``without_waits``.
        keep: also keep the removed waits.
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
