"""Hoisting weight gathers: all-gathers of parameters issued k places, or iterations, earlier.

The idea, outside loops: the i-th weight gather of a block is issued where the (i - k)-th was, the
first k at the front, together with the nodes that prepare its operand.  Order edges and
optimization barriers that held it back are dropped, and those of its new position apply; nodes that
waited for it still wait for what it waited for; all data edges stay.

In loops the gathers of an iteration are issued k iterations earlier, at the same position, and
carried (see ``flint.passes.what_if.ahead``).  ``flint.passes.what_if.gathers`` selects the gathers;
those of activations are not moved.

    graph = hoist(graph, by=1)
"""

from __future__ import annotations

from flint.graph.graph import Loop, WorkloadGraph
from flint.passes.columns import with_bodies
from flint.passes.order_edges import passed_on, waits, with_waits
from flint.passes.what_if.ahead import gathered_ahead
from flint.passes.what_if.gathers import past_joins, weight_gathers
from flint.passes.what_if.reissue import reissued


def hoist(graph: WorkloadGraph, *, by: int) -> WorkloadGraph:
    """``graph`` with its weight gathers issued earlier; costs the memory of the gathered weights.

    Args:
        graph: at any granularity.
        by: positions among the weight gathers of the block; iterations of a loop.
    """
    return _hoisted(graph, by, None)


def _hoisted(graph: WorkloadGraph, by: int, loop: Loop | None) -> WorkloadGraph:
    graph = with_bodies(graph, lambda body, inside: _hoisted(body, by, inside))
    carried = loop.carried if loop is not None else 0
    graph = gathered_ahead(past_joins(graph, carried), by=by)
    found = weight_gathers(graph, carried)
    # Gathers of a loop move to an earlier iteration, and keep their position in it.
    if not found or (loop is not None and loop.trip_count > 1):
        return graph
    gathers = list(found)
    keys: dict[int, float] = {}
    held = waits(graph)
    edges = [list(item) for item in held]
    for i, gather in enumerate(gathers):
        place = gathers[i - by] if i >= by else -1
        moved = {node for node in found[gather] | {gather} if node > place}
        for node in moved - keys.keys():
            keys[node] = place - 0.5
            edges[node] = [edge for edge in held[node] if edge[0] < place or edge[0] in moved]
        if i >= by:
            edges[gather] = list(dict.fromkeys([*edges[gather], *held[place]]))
    for node in range(len(graph)):
        if node not in keys:
            edges[node] = passed_on(held, node, lambda before, _: before in keys, keep=True)
    return reissued(with_waits(graph, edges), keys)
