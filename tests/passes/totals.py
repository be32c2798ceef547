"""Sums that passes must keep, counted node by node."""

from __future__ import annotations

from collections import Counter

from flint.graph.graph import NodeKind, WorkloadGraph


def work(graph: WorkloadGraph) -> Counter[object]:
    """FLOPs by unit, element type and GEMM size, loops multiplied."""
    total: Counter[object] = Counter()
    for block, times in graph.walk():
        for node in block:
            for item in node.work.items:
                total[item.unit, item.dtype, item.dims] += times * item.flops
    return +total


def communications(graph: WorkloadGraph) -> Counter[object]:
    """Communications by table index, loops multiplied."""
    total: Counter[object] = Counter()
    for block, times in graph.walk():
        for node in block:
            if node.kind == NodeKind.COMMUNICATION:
                total[int(block.detail[node.index])] += times
    return total


def ops(graph: WorkloadGraph) -> int:
    """StableHLO ops that the nodes stand for, bodies once."""
    total = int(graph.ops_merged.sum())
    return total + sum(ops(loop.body) for loop in graph.loops)
