"""Checking captured edges against the order of execution.

The idea: if a captured op waits for another one, the pair must have run in that order.  Edges lead
through ops that were not compared (views, fused element-wise work), so each compared op is checked
against the nearest compared ones before it, within one execution of its graph.

    contradictions(expected, began)        # [(producer, consumer), ...]
"""

from __future__ import annotations

import numpy as np

from flint.graph.graph import EdgeKind, NodeKind, WorkloadGraph
from flint.graph.joins import through_joins
from flint.mesh.ragged import Ints
from flint.validation.expected.ops import Expected

#: The most compared predecessors of an op that are examined.
_MOST = 4096


def contradictions(
    expected: Expected, began: Ints, *, barriers: bool = True, issued: bool = True
) -> tuple[int, list[tuple[int, int]]]:
    """Number of checked edges, and (producer, consumer) of those that the run contradicts.

    Args:
        expected: a rank's ops.
        began: when each of them began, -1 for those that were not found, shape [ops].
        barriers: whether the backend keeps optimization barriers until it has scheduled its
            kernels.
        issued: whether kernels of a stream run in the captured order; a compiler of parts of the
            program chooses its own.
    """
    checked, wrong = 0, []
    for number, graph in enumerate(expected.graphs):
        graph = graph if barriers else through_joins(graph)
        inside = np.flatnonzero(expected.graph == number)
        found = inside[began[inside] >= 0]
        before = _nearest(graph, set(expected.node[found].tolist()), issued)
        at = {(int(expected.instance[i]), int(expected.node[i])): int(i) for i in found.tolist()}
        for (instance, node), consumer in at.items():
            for other in before.get(node, ()):
                producer = at.get((instance, other))
                if producer is None:
                    continue
                checked += 1
                if began[producer] > began[consumer]:
                    wrong.append((producer, consumer))
    return checked, sorted(wrong)


def _nearest(graph: WorkloadGraph, compared: set[int], issued: bool) -> dict[int, frozenset[int]]:
    """For every compared node, the nearest compared nodes that it waits for."""
    behind: list[frozenset[int]] = []
    result: dict[int, frozenset[int]] = {}
    producer = graph.producer
    computes = graph.kind != NodeKind.COMMUNICATION
    for index in range(len(graph)):
        operands = graph.operands_of(index)
        direct = set(producer[operands].tolist()) - {-1}
        order = slice(graph.order_ptr[index], graph.order_ptr[index + 1])
        kept = issued | (graph.order_kind[order] != EdgeKind.STREAM) | ~computes[index]
        direct |= set(graph.order_node[order][kept].tolist())
        reached: set[int] = set()
        for node in direct:
            reached |= behind[node]
            if len(reached) > _MOST:
                break
        here = frozenset(reached)
        if index in compared:
            result[index] = here
            here = frozenset((index,))
        behind.append(here)
    return result
