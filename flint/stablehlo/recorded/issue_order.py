"""Recorded modules: streams, waits and views, from how the framework issued the ops.

The idea: data edges come from the module's values.  Other waits of a device are added as order
edges: the ops of a stream run one after another, and an op waits for the events, works and earlier
users of memory that the recorder saw it wait for.  A view between kernels takes no time.

    graph = issued(graph, {node: Issue(7, stream=2, after=(4, 5)), ...})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from flint.errors import FlintError
from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.order_edges import with_edges
from flint.stablehlo.read.records import Issue, Module
from flint.stablehlo.walk.scope import Scope


def issued_as_recorded(graph: WorkloadGraph, module: Module, scope: Scope) -> WorkloadGraph:
    """The graph of a recorded module's entry function with the order edges of its issue.

    Args:
        graph: as the walk gives it.
        module: the records, with ``issues``.
        scope: the ops' results in the graph.
    """
    node_of = scope.builder.producer_of
    issues = {node_of(scope.values[value]): issue for value, issue in module.issues.items()}
    return issued(graph, issues)


def issued(graph: WorkloadGraph, issues: Mapping[int, Issue]) -> WorkloadGraph:
    """``graph`` with the order edges of its recorded issue.

    Args:
        graph: nodes in the order of the recording.
        issues: node -> how it was issued; nodes that are missing have data edges only.

    Raises:
        FlintError: an op waits for one that does not exist or comes later.
    """
    node_of = {issue.number: node for node, issue in issues.items() if issue.number >= 0}
    edges: list[tuple[int, int, int]] = existing_edges(graph)
    last: dict[int, int] = {}
    for node in sorted(issues):
        issue = issues[node]
        if issue.number < 0:
            continue
        if issue.stream in last:
            edges.append((node, last[issue.stream], EdgeKind.STREAM))
        last[issue.stream] = node
        for number in issue.after:
            first = node_of.get(number, node)
            if first >= node:
                raise FlintError(
                    f"recorded op {issue.number} waits for op {number}, which "
                    + ("does not come before it" if number in node_of else "does not exist")
                )
            edges.append((node, first, EdgeKind.ORDER))
    free = np.zeros(len(graph), bool)
    free[[node for node, issue in issues.items() if issue.number < 0]] = True
    return ordered(without_cost(graph, free), edges)


def existing_edges(graph: WorkloadGraph) -> list[tuple[int, int, int]]:
    """The order edges of a graph: (consumer, first, kind)."""
    consumer = row_of_entry(graph.order_ptr)
    return list(
        zip(consumer.tolist(), graph.order_node.tolist(), graph.order_kind.tolist(), strict=True)
    )


def ordered(graph: WorkloadGraph, edges: list[tuple[int, int, int]]) -> WorkloadGraph:
    """``graph`` with order edges (consumer, first, kind) instead of its own, one per pair."""
    known = {(consumer, first): kind for consumer, first, kind in reversed(edges)}
    rows = np.array(sorted((*pair, kind) for pair, kind in known.items()), np.int64).reshape(-1, 3)
    return with_edges(graph, rows[:, 0], rows[:, 1], rows[:, 2].astype(np.int8))


def without_cost(graph: WorkloadGraph, free: np.ndarray[Any, np.dtype[np.bool_]]) -> WorkloadGraph:
    """``graph`` whose nodes in ``free`` are aliases without work."""
    free = free & (graph.kind == NodeKind.COMPUTE)
    kept = ~np.repeat(free, np.diff(graph.work_ptr))
    counts = np.where(free, 0, np.diff(graph.work_ptr))
    return replace(
        graph,
        role=np.where(free, np.int8(Role.ALIAS), graph.role).astype(np.int8),
        bytes_read=np.where(free, 0, graph.bytes_read),
        bytes_written=np.where(free, 0, graph.bytes_written),
        bytes_aliased=np.where(free, 0, graph.bytes_aliased),
        ops_merged=np.where(free, 0, graph.ops_merged),
        work_ptr=pointer(counts),
        work_unit=graph.work_unit[kept],
        work_dtype=graph.work_dtype[kept],
        work_flops=graph.work_flops[kept],
        work_gemm=graph.work_gemm[kept],
    )
