"""One iteration of a program's main loop, as a program of its own.

The idea: a training that is one program from the first step to the last has its step in a loop.
The program of one iteration takes what the loop takes and returns what it carries.  It keeps the
loop, with one round, so that what depends on the loop's counter is that of the first round.

    step, rounds = one_iteration(graph)         # None where there is no loop
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.passes.columns import nodes_between


def one_iteration(graph: WorkloadGraph) -> tuple[WorkloadGraph, int] | None:
    """The first round of the loop that runs most nodes, and its number of rounds.

    The inputs are the loop's operands.
    """
    loops = np.flatnonzero(graph.kind == NodeKind.LOOP).tolist()
    if not loops:
        return None
    node = max(loops, key=lambda item: _nodes(graph, item))
    loop = graph.loop_of(node)
    operands = graph.operands_of(node)
    nothing = np.zeros(0, np.int64)
    columns = nodes_between(graph, node, node + 1)
    columns |= {"detail": np.zeros(1, np.int64), "operand": np.arange(len(operands))}
    step = replace(
        graph,
        **columns,
        input_type=graph.value_type[operands],
        order_ptr=np.zeros(2, np.int64),
        order_node=nothing,
        order_kind=nothing.astype(np.int8),
        outputs=len(operands) + np.arange(loop.carried),
        loops=(replace(loop, trip_count=1),),
        conditionals=(),
    )
    return step, loop.trip_count


def _nodes(graph: WorkloadGraph, node: int) -> int:
    loop = graph.loop_of(node)
    return sum(len(body) * times for body, times in loop.body.walk(loop.trip_count))
