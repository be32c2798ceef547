"""One program's own graph, out of several programs in sequence that were joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.columns import nodes_between
from flint.passes.in_sequence import END, READ, Origin


def ends(graph: WorkloadGraph) -> Ints:
    """The nodes at which the programs of a graph end; none for a single program."""
    named = np.array([name == END for name in graph.tables.ops] or [False])
    return np.flatnonzero(named[graph.op] & (graph.role == Role.CONTROL))


def alone(
    graph: WorkloadGraph, number: int, operands: Sequence[Origin], outputs: Sequence[int]
) -> WorkloadGraph:
    """One program's own graph, out of several that a graph joins.

    Args:
        graph: the joined graph, at the granularity at which it was joined.
        number: number of the program.
        operands: where its inputs come from.
        outputs: number of values that each program returns.
    """
    last = ends(graph)
    names = graph.tables.ops
    first = 0 if number == 0 else int(last[number - 1]) + 1
    while names[graph.op[first]] == READ and graph.role[first] == Role.CONTROL:
        first += 1
    end = int(last[number])
    place = {Origin(-1, item): item for item in range(graph.inputs)}
    for earlier in range(number + 1):
        start = int(graph.operand_ptr[last[earlier]])
        returned = graph.operand[start : start + outputs[earlier]].tolist()
        place |= {Origin(earlier, item): value for item, value in enumerate(returned)}
    given = [place[origin] for origin in operands]
    renumbered = np.zeros(graph.values, np.int64)
    low, high = graph.inputs + graph.result_ptr[[first, end]]
    renumbered[low:high] = np.arange(high - low) + len(given)
    renumbered[given] = np.arange(len(given))
    inside = (row_of_entry(graph.order_ptr) >= first) & (row_of_entry(graph.order_ptr) < end)
    inside &= graph.order_node >= first
    columns = nodes_between(graph, first, end)
    columns["detail"] = columns["detail"].copy()
    bodies: dict[NodeKind, Ints] = {}
    for kind in (NodeKind.LOOP, NodeKind.CONDITIONAL):
        own = columns["kind"] == kind
        bodies[kind] = np.unique(columns["detail"][own])
        columns["detail"][own] = np.searchsorted(bodies[kind], columns["detail"][own])
    after = row_of_entry(graph.order_ptr)[inside] - first
    returned = [place[Origin(number, item)] for item in range(outputs[number])]
    return replace(
        graph,
        **columns | {"operand": renumbered[columns["operand"]]},
        input_type=graph.value_type[given],
        order_ptr=pointer(np.bincount(after, minlength=end - first)),
        order_node=graph.order_node[inside] - first,
        order_kind=graph.order_kind[inside],
        outputs=renumbered[returned],
        loops=tuple(graph.loops[place] for place in bodies[NodeKind.LOOP]),
        conditionals=tuple(graph.conditionals[place] for place in bodies[NodeKind.CONDITIONAL]),
    )
