"""Joins: free nodes that pass on each operand once all operands are available.

The idea: an optimization barrier has as many results as operands, and result ``i`` is operand ``i``
under another name. *When* a result is available depends on all operands; *what* it is, and in which
buffer, depends on one of them.  Code that needs times uses edges as they are; code that needs
contents, buffers or origins looks through joins.

    kept, held = optimization_barrier(weight, gradient)     # behind(graph)[kept] is weight

A node that renames a single value is not a join: it waits for nothing else.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import row_of_entry, segments


def renames(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes that pass on operand ``i`` as result ``i``, for one or more operands, shape [nodes]."""
    counts = np.diff(graph.result_ptr)
    found: NDArray[np.bool_] = (graph.role == Role.ALIAS) & (graph.kind == NodeKind.COMPUTE)
    found &= (counts == np.diff(graph.operand_ptr)) & (np.diff(graph.work_ptr) == 0)
    nodes = np.flatnonzero(found)
    sources, targets = _pairs(graph, nodes)
    resized = graph.value_bytes[sources] != graph.value_bytes[targets]
    found[np.repeat(nodes, counts[nodes])[resized]] = False
    return found


def joins(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Nodes that pass on several operands, shape [nodes]."""
    several: NDArray[np.bool_] = (graph.role == Role.ALIAS) & (np.diff(graph.result_ptr) > 1)
    return several & renames(graph) if several.any() else several


def behind(graph: WorkloadGraph, nodes: NDArray[np.bool_]) -> Ints:
    """The value that each value is another name for (else itself), shape [values].

    Args:
        graph: a block.
        nodes: which of its renaming nodes are looked through, shape [nodes].
    """
    found = list(range(graph.values))
    sources, targets = _pairs(graph, np.flatnonzero(nodes))
    # In issue order, so that an operand is resolved before what renames it.
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        found[target] = found[source]
    return np.array(found, dtype=np.int64)


def through_joins(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` with readers of a join's results reading its operands instead.

    It shows what is computed from what, but no longer when; bodies are unchanged.
    """
    found = joins(graph)
    if not found.any():
        return graph
    named = behind(graph, found)
    return replace(graph, operand=named[graph.operand], outputs=named[graph.outputs])


def narrowed(graph: WorkloadGraph, unread: NDArray[np.bool_]) -> WorkloadGraph:
    """``graph`` whose joins no longer take and pass on values that nothing needs.

    Args:
        graph: a block.
        unread: which values need not be passed on because nothing reads them, shape [values].
    """
    node = row_of_entry(graph.result_ptr)
    gone = np.flatnonzero(joins(graph)[node] & unread[graph.inputs :])
    if not len(gone):
        return graph
    operands = graph.operand_ptr[node[gone]] + gone - graph.result_ptr[node[gone]]
    lost = np.bincount(node[gone], minlength=len(graph))
    fewer = np.concatenate([[0], np.cumsum(lost)])
    left = np.ones(graph.values, dtype=bool)
    left[graph.inputs + gone] = False
    number = np.cumsum(left) - 1
    return replace(
        graph,
        result_ptr=graph.result_ptr - fewer,
        result_type=np.delete(graph.result_type, gone),
        operand_ptr=graph.operand_ptr - fewer,
        operand=number[np.delete(graph.operand, operands)],
        outputs=number[graph.outputs],
    )


def renamed(graph: WorkloadGraph, value: int) -> int | None:
    """The operand that a value is another name for; None if its node computes it."""
    node = int(graph.producer[value])
    if node < 0 or graph.role[node] != Role.ALIAS or graph.kind[node] != NodeKind.COMPUTE:
        return None
    first, last = graph.operand_ptr[node : node + 2].tolist()
    low, high = (graph.result_ptr[node : node + 2] + graph.inputs).tolist()
    return int(graph.operand[first + value - low]) if last - first == high - low else None


def _pairs(graph: WorkloadGraph, nodes: Ints) -> tuple[Ints, Ints]:
    """The operands and the results of nodes that have the same number of both, pair by pair."""
    counts = np.diff(graph.result_ptr)[nodes]
    sources = graph.operand[segments(graph.operand_ptr[nodes], counts)]
    return sources, graph.inputs + segments(graph.result_ptr[nodes], counts)
