"""The order in which the nodes of a compiled program ran on each stream of a device, as edges.

graph = in_streams(graph, units, prelude=10_000)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.distinct import distinct
from flint.graph.graph import EdgeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry
from flint.passes.rematerialize import FUSIBLE
from flint.post_execution.units import NO_STREAM, Units

#: Nanoseconds by which the rounded end of an event may be after the begin of the next.
_ROUNDED = 2


def in_streams(graph: WorkloadGraph, units: Units, prelude: int) -> WorkloadGraph:
    """The graph, each node also after the last one of its stream that had ended when it began.

    Executed nodes are kernels of their own: compilers have joined what they join.

    Args:
        graph: the nodes.
        units: the same, as executed.
        prelude: nanoseconds that a node may begin before the end of the one that it waits for, if
            that began before it and ends before it.
    """
    before, after = [graph.order_node], [row_of_entry(graph.order_ptr)]
    ran = np.flatnonzero(units.stream != NO_STREAM)
    for stream in distinct(units.stream[ran]).tolist():
        own = ran[units.stream[ran] == stream]
        by_end = own[np.argsort(units.end[own], kind="stable")]
        place = np.searchsorted(units.end[by_end], units.start[own] + _ROUNDED, "right") - 1
        found = np.where(place >= 0, by_end[place], -1)
        by_start = np.argsort(units.start[own], kind="stable")
        last, this = by_start[:-1], by_start[1:]
        late = units.end[own[last]] - units.start[own[this]]
        closer = (late > 0) & (late <= prelude) & (units.end[own[last]] <= units.end[own[this]])
        found[this[closer]] = own[last[closer]]
        held = found >= 0
        previous, node = found[held], own[held]
        forward = previous < node
        before.append(previous[forward])
        after.append(node[forward])
    kinds = np.full(sum(map(len, before)), int(EdgeKind.STREAM), np.int8)
    kinds[: len(graph.order_kind)] = graph.order_kind
    waits, first = np.concatenate(after), np.concatenate(before)
    order = np.lexsort((first, waits))
    role = graph.role.copy()
    role[ran[np.isin(role[ran], FUSIBLE)]] = Role.OPAQUE
    return replace(
        graph,
        role=role,
        order_ptr=pointer(np.bincount(waits, minlength=len(graph))),
        order_node=first[order],
        order_kind=kinds[order],
    )
