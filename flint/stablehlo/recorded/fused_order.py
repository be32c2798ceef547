"""Opened recorded modules: the ops of a composite keep its position in the issue order.

The idea: a compiler decides anew what one kernel is, but not the order of issue.  Composites become
their ops, which get the composite's origin, and the recording's streams and waits apply to them
(see ``fused_streams.py``).

    graph = issued(state, graph, scope)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flint.graph.graph import WorkloadGraph
from flint.graph.work import Role
from flint.stablehlo.recorded.fused_streams import Opened, Streams
from flint.stablehlo.recorded.issue_order import existing_edges, issued_as_recorded, ordered
from flint.stablehlo.recorded.read_views import with_read_views
from flint.stablehlo.recorded.written_views import with_written_views
from flint.stablehlo.sources.borrowed_sources import with_borrowed_sources
from flint.stablehlo.walk.scope import Scope
from flint.stablehlo.walk.state import WalkState


def issued(state: WalkState, graph: WorkloadGraph, scope: Scope) -> WorkloadGraph:
    """The graph of a recorded module's entry function with the order edges of its issue.

    Args:
        state: of the walk of the recorded module.
        graph: as the walk gives it.
        scope: the ops' results in the graph.
    """
    if not state.options.fuse:
        return issued_as_recorded(graph, state.module, scope)
    found = []
    for op in state.module.functions["main"].ops:
        issue = state.module.issues.get(op.results[0]) if op.results else None
        if issue is not None and issue.number >= 0:
            node = scope.builder.producer_of(scope.values[op.results[0]])
            nodes, source = state.opened.get(op.results[0], (range(node, node + 1), 0))
            found.append(Opened(issue, nodes, source))
    ordered = with_borrowed_sources(issued_in_parts(graph, found))
    named = with_read_views(ordered, state.module, scope, state.opened)
    return with_written_views(named, state.module, scope)


def issued_in_parts(graph: WorkloadGraph, ops: Sequence[Opened]) -> WorkloadGraph:
    """``graph`` with the order edges and origins of the recorded ops that its nodes are parts of.

    Args:
        graph: nodes in the order of the recording.
        ops: the recorded ops that launch something, in their order.

    Raises:
        FlintError: an op waits for one that does not exist or comes later.
    """
    streams = Streams(graph, ops)
    for item in ops:
        streams.issue(item)
    source = graph.source.copy()
    for item in ops:
        if item.source:  # decompositions are shared by many calls
            source[item.nodes.start : item.nodes.stop] = item.source
    edges = existing_edges(graph) + streams.edges
    graph = ordered(replace(graph, source=source), edges)
    return _without_copies(graph, ops)


def _without_copies(graph: WorkloadGraph, ops: Sequence[Opened]) -> WorkloadGraph:
    """``graph`` in which memory that was only allocated is not copied when it is written.

    The module has it as zeros between kernels; otherwise updates of a constant need a copy.
    """
    between = np.ones(len(graph), dtype=bool)
    for item in ops:
        between[item.nodes.start : item.nodes.stop] = False
    first = graph.producer[graph.operand[graph.operand_ptr[:-1][graph.role == Role.UPDATE]]]
    fresh = (first >= 0) & between[first] & (graph.role[first] == Role.GENERATE)
    update = np.flatnonzero(graph.role == Role.UPDATE)[fresh]
    aliased = graph.bytes_aliased.copy()
    aliased[update[between[update]]] = 0
    return replace(graph, bytes_aliased=aliased)
