"""The host of a recorded program, as nodes, and other waits of its kernels, as delays.

The idea: a launch is a node of the host's lane: it follows the previous launch, and nodes that the
host waited for in between; its time is what the host spent from the later of them to the call. A
kernel follows its launch.  The remaining time from the end of all its dependencies to its start (a
launch on its way to an idle device, the gap between two kernels of a stream) is its own delay. For
a program that ran on the host itself, the host's time after the last node follows that node. If
nothing else is changed, each node begins exactly when it did in the run.

    launches      host ---> host ------------> host
                    |         |                  |
    stream 7        +-> gemm  +-> (delay) gelu   +-> ...

    with_host_lane(program.graph, program.timing)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.graph import (
    NODE_COLUMNS,
    WORK_COLUMNS,
    EdgeKind,
    Ints,
    NodeKind,
    WorkloadGraph,
)
from flint.graph.tensor_types import DTYPE_CODE
from flint.graph.timing import UNKNOWN_LAUNCH, Timing
from flint.graph.work import Role, Unit
from flint.mesh.ragged import pointer, row_of_entry

#: Op name of a launch.
HOST: Final = "host"
#: Two clocks of a profiler agree to this many nanoseconds; beyond that, one did not wait for the
#: other.
_JITTER: Final = 2_000
#: A kernel may begin this many nanoseconds before the previous one of its stream has ended, and
#: then wait for it (CUDA's programmatic dependent launch): up to 6.5 us on an H100.
PRELUDE: Final = 10_000


def on_host(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Which nodes are on the host's lane, shape [nodes]."""
    if HOST not in graph.tables.ops:
        return np.zeros(len(graph), np.bool_)
    named = graph.op == graph.tables.ops.index(HOST)
    found: NDArray[np.bool_] = named & (graph.role == Role.CONTROL)
    return found


def launches(graph: WorkloadGraph) -> bool:
    """Whether a host launches any of the nodes; its work after all of them is not a launch."""
    return bool(on_host(graph)[:-1].any())


def with_host_lane(
    graph: WorkloadGraph, timing: Timing, launch_nanoseconds: int | None = None
) -> WorkloadGraph:
    """The graph with its launches as nodes, and with delays.

    Args:
        graph: as recorded, without loops.
        timing: times of its nodes.
        launch_nanoseconds: cost of each launch instead of the host's time before it; there are then
            no delays.

    Raises:
        FlintError: it has loops.
    """
    if graph.loops or graph.conditionals:
        raise FlintError("a recorded program has no loops or branches")
    if not len(graph):
        return graph
    own = timing.start + np.maximum(graph.recorded_by_node(), 0)
    arrived = own if timing.end is None else timing.end
    end = np.maximum(own, arrived)
    host = _Lane(timing, end)
    waits = row_of_entry(graph.order_ptr)
    before = graph.order_node
    late = end[before] - timing.start[waits]
    kernels = (graph.kind[before] == NodeKind.COMPUTE) & (graph.kind[waits] == NodeKind.COMPUTE)
    awaited = kernels & (graph.order_kind == EdgeKind.STREAM) & (end[before] <= own[waits])
    held = late <= np.where(awaited, PRELUDE, _JITTER)  # the others ran side by side
    after, before, kind = waits[held], before[held], graph.order_kind[held]
    delays = timing.start.copy()
    data = graph.producer[graph.operand]
    ready = np.full(len(graph), -1, np.int64)
    np.maximum.at(ready, after, end[before])
    np.maximum.at(ready, graph.consumer[data >= 0], arrived[data[data >= 0]])
    attached = host.of_node >= 0
    ready[attached] = np.maximum(ready[attached], host.over[host.of_node[attached]])
    delays -= np.maximum(ready, 0)
    spent = host.spent
    if launch_nanoseconds is not None:
        delays[:] = 0
        spent = np.full(len(spent), launch_nanoseconds, np.int64)
    number = np.arange(len(graph)) + np.searchsorted(host.node, np.arange(len(graph)), "right")
    lane = number[host.node] - 1
    last = int(np.argmax(end))
    rest = timing.over - int(end[last])
    after_all = np.arange(int(rest > 0 and launch_nanoseconds is None)) + len(graph) + len(lane)
    lane, spent = np.append(lane, after_all), np.append(spent, after_all * 0 + rest)
    edges = [
        _order(after_all, number[[last] * len(after_all)]),
        (number[after], number[before], kind),
        _order(lane[1:], lane[:-1]),
        _order(lane[host.waiting], number[host.awaited]),
        _order(number[attached], lane[host.of_node[attached]]),
    ]
    return _merged(graph, number, lane, spent, delays, edges)


def _order(after: Ints, before: Ints) -> tuple[Ints, Ints, NDArray[np.int8]]:
    return after, before, np.full(len(after), EdgeKind.ORDER, np.int8)


class _Lane:
    """Launches, in order.

    Attributes:
        node: the node that each precedes, ascending, shape [launches].
        over: when each was made, ascending, ns.
        spent: the host's time before it, ns.
        of_node: the launch that each node follows, -1 for none, shape [nodes].
        waiting, awaited: launches, and the nodes that the host waited for before them.
    """

    def __init__(self, timing: Timing, end: Ints) -> None:
        nodes = len(timing.start)
        # A call that was made after its node began did not launch it: its number is another's.
        known = (timing.launch != UNKNOWN_LAUNCH) & (timing.launch <= timing.start + _JITTER)
        reached = np.maximum.accumulate(np.where(known, timing.launch, 0))
        new = known & (np.diff(reached, prepend=0) > 0)
        self.node = np.flatnonzero(new)
        self.over = reached[self.node]
        # The latest launch made by the time a node began, up to its own.
        latest = np.searchsorted(self.node, np.arange(nodes), "right") - 1
        began = np.searchsorted(self.over, timing.start, "right") - 1
        self.of_node = np.where(known, np.minimum(latest, began), -1)
        pairs = timing.waits.reshape(-1, 2)
        at = np.searchsorted(self.node, pairs[:, 1], "left")
        there = at < len(self.node)
        waiting, awaited = at[there], pairs[there, 0]
        real = (end[awaited] <= self.over[waiting]) & (awaited < self.node[waiting])
        self.waiting, self.awaited = waiting[real], awaited[real]
        since = np.concatenate([[0], self.over[:-1]]) if len(self.over) else self.over.copy()
        np.maximum.at(since, self.waiting, end[self.awaited])
        self.spent = self.over - since


def _merged(
    graph: WorkloadGraph,
    number: Ints,
    launches: Ints,
    spent: Ints,
    delays: Ints,
    edges: list[tuple[Ints, Ints, NDArray[np.int8]]],
) -> WorkloadGraph:
    """The graph with launches between its nodes.

    Args:
        graph: the nodes.
        number, launches: positions of nodes and launches.
        spent, delays: nanoseconds of launches and of nodes.
        edges: (after, before, kind) without values, for the whole graph.
    """
    count = len(graph) + len(launches)
    tables = replace(graph.tables, ops=(*graph.tables.ops, HOST))
    columns: dict[str, Any] = {}
    fixed = {
        "kind": int(NodeKind.COMPUTE), "role": int(Role.CONTROL), "op": len(graph.tables.ops),
        "detail": -1,
    }  # fmt: skip
    for name in NODE_COLUMNS:
        old = getattr(graph, name)
        columns[name] = np.full(count, fixed.get(name, 0), old.dtype)
        columns[name][number] = old
    for name in ("result_ptr", "operand_ptr"):
        lengths = np.zeros(count, np.int64)
        lengths[number] = np.diff(getattr(graph, name))
        columns[name] = pointer(lengths)
    owner = np.concatenate([number[row_of_entry(graph.work_ptr)], launches, number])
    nothing = np.zeros(len(launches) + len(number), np.int64)
    items = {
        "work_unit": np.concatenate(
            [
                np.full(len(launches), int(Unit.MEASURED)),
                np.where(delays < 0, int(Unit.AHEAD), int(Unit.DELAY)),
            ]
        ),
        "work_dtype": nothing + DTYPE_CODE["index"],
        "work_flops": np.concatenate([spent, np.abs(delays)]),
        "work_gemm": nothing - 1,
    }
    kept = np.ones(len(owner), np.bool_)
    kept[len(graph.work_flops) + len(launches) :] = delays != 0
    order = np.flatnonzero(kept)[np.argsort(owner[kept], kind="stable")]
    for name in WORK_COLUMNS:
        old = getattr(graph, name)
        columns[name] = np.concatenate([old, items[name].astype(old.dtype)])[order]
    columns["work_ptr"] = pointer(np.bincount(owner[kept], minlength=count))
    after, before, kind = (np.concatenate(part) for part in zip(*edges, strict=True))
    by_node = np.lexsort((before, after))
    return replace(
        graph,
        tables=tables,
        **columns,
        order_ptr=pointer(np.bincount(after, minlength=count)),
        order_node=before[by_node],
        order_kind=kind[by_node],
    )
