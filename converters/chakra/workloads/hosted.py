"""Traces of a host and its device: when each kernel was launched, and began.

The idea: Chakra's converter of PyTorch's traces keeps what every op and kernel took, and not when.
Played as simulators play it (each node when its dependencies have ended, one kernel and one
communication at a time), the host's ops tell when they launched each kernel, and which kernels they
waited for.  The kernels are then those of a profile.

    found = played(trace, links)
    found.launch[row]       # nanoseconds from the start of the step
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.links import Links
from flint.converters.chakra.read.trace import Trace
from flint.converters.chakra.schema import NodeType
from flint.errors import FlintError
from flint.graph.graph import Ints
from flint.graph.timing import UNKNOWN_LAUNCH, Timing

_TALKS: Final = (NodeType.COLL, NodeType.SEND, NodeType.RECV)
#: Longer durations, in microseconds, are no step's.
LONGEST: Final = 1 << 50


@dataclass(frozen=True, eq=False, slots=True)
class Played:
    """When what ran.

    Attributes:
        place: how many nodes began before each, shape [nodes].
        start, end: nanoseconds, shape [nodes].
        launch: when the last of the host's ops that a node depends on had ended, ns;
            ``UNKNOWN_LAUNCH`` if it depends on none, shape [nodes].
        awaited, continued: kernels that the host waited for, and when it went on after that, ns.
        over: when the host's last op had ended, ns.
    """

    place: Ints
    start: Ints
    end: Ints
    launch: Ints
    awaited: Ints
    continued: Ints
    over: int


def on_host(trace: Trace) -> NDArray[np.bool_]:
    """Which nodes are ops of the host, beside kernels of a device; shape [nodes]."""
    host = (trace.is_cpu_op > 0) & ~np.isin(trace.type, _TALKS)
    device = ~host & ~np.isin(trace.type, (NodeType.METADATA, NodeType.INVALID))
    found: NDArray[np.bool_] = host & device.any()
    return found


def nanoseconds(trace: Trace) -> Ints:
    """How long each node took; 0 for durations of centuries; shape [nodes]."""
    micros = np.where(trace.duration > LONGEST, 0, trace.duration).astype(np.int64)
    return micros * 1000


def played(trace: Trace, links: Links) -> Played:
    """A trace, played.

    Args:
        trace: with nodes of a host.
        links: its dependencies.

    Raises:
        FlintError: nodes wait for each other.
    """
    host, talks = on_host(trace), np.isin(trace.type, _TALKS)
    # The control dependency of a node is the op that it is part of.
    child, parent = links.data.child(), links.data.parent
    by_parent = np.argsort(parent, kind="stable")
    first = np.searchsorted(parent[by_parent], np.arange(len(trace) + 1)).tolist()
    below = child[by_parent].tolist()
    missing = np.bincount(child, minlength=len(trace)).tolist()
    spent = nanoseconds(trace).tolist()
    slot = np.where(host, 0, np.where(talks, 2, 1)).tolist()
    free = [0, 0, 0]
    count = len(trace)
    ready, place = [0] * count, [0] * count
    start, end = [0] * count, [0] * count
    number = np.argsort(np.argsort(trace.id, kind="stable"), kind="stable").tolist()
    waiting = [(0, number[row], row) for row in range(count) if not missing[row]]
    heapq.heapify(waiting)
    begun = 0
    while waiting:
        when, _, row = heapq.heappop(waiting)
        place[row], begun = begun, begun + 1
        lane = slot[row]
        start[row] = max(when, free[lane]) if lane else when
        end[row] = free[lane] = start[row] + spent[row]
        for other in below[first[row] : first[row + 1]]:
            ready[other] = max(ready[other], end[row])
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(waiting, (ready[other], number[other], other))
    if begun < count:
        raise never_run(trace, missing.index(max(missing)))
    over, began = np.array(end, np.int64), np.array(start, np.int64)
    launch = np.full(count, UNKNOWN_LAUNCH, np.int64)
    launched = host[parent] & ~host[child]
    np.maximum.at(launch, child[launched], over[parent[launched]])
    waited = ~host[parent] & host[child]
    return Played(
        place=np.array(place, np.int64), start=began, end=over, launch=launch,
        awaited=parent[waited], continued=began[child[waited]],
        over=int(over[host].max(initial=0)),
    )  # fmt: skip


def never_run(trace: Trace, row: int) -> FlintError:
    """That a node waits for itself, by way of others."""
    return FlintError(
        f"{trace.path}: nodes wait for each other in a circle, among them id {trace.id[row]}, "
        "so none of them would ever run; flint check lists the circle"
    )


def in_slots(trace: Trace, found: Played) -> tuple[Ints, Ints]:
    """What follows what on the device: kernels, and communications, one after another."""
    host, talks = on_host(trace), np.isin(trace.type, _TALKS)
    runs = ~np.isin(trace.type, (NodeType.METADATA, NodeType.INVALID))
    before, after = [], []
    for some in (runs & ~host & ~talks, runs & ~host & talks):
        rows = np.flatnonzero(some)
        rows = rows[np.argsort(found.place[rows])]
        before.append(rows[:-1])
        after.append(rows[1:])
    return np.concatenate(before), np.concatenate(after)


def timing_of(found: Played, rows: Ints) -> Timing:
    """When nodes began and were launched.

    Args:
        found: the trace, played.
        rows: the rows of the nodes, in order of issue.
    """
    position = np.full(len(found.place), -1, np.int64)
    position[rows] = np.arange(len(rows))
    launch = found.launch[rows]
    reached = np.maximum.accumulate(launch) if len(launch) else launch
    awaited = position[found.awaited]
    following = np.searchsorted(reached, found.continued, "left")
    real = (awaited >= 0) & (awaited < following) & (following < len(rows))
    waits = np.unique(np.stack([awaited[real], following[real]], axis=1), axis=0)
    return Timing(found.start[rows], launch, waits, found.over)
