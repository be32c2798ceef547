"""What the nodes of a program add up to, counted one by one, loops multiplied."""

from __future__ import annotations

from flint.graph.work import Unit


def product_flops(program):
    """FLOPs of matrix products and convolutions."""
    return sum(
        times * item.flops
        for graph, times in program.graph.walk()
        for node in graph
        for item in node.work.items
        if item.unit is Unit.MATMUL
    )


def communications(workload, *kinds):
    """Nodes of some kinds of communication, or of all, with the number of their executions."""
    [program] = workload.programs
    return [
        (node, times)
        for graph, times in program.graph.walk()
        for node in graph
        if node.communication is not None and (not kinds or node.communication.kind in kinds)
    ]
