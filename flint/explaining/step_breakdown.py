"""The kernels of a simulated step, to break its time down like a profile's.

breakdown(kernels_of(played, actor)).overlap
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.execution.node_types import NodeType
from flint.explaining.breakdown import NO_LAUNCH, Breakdown, Kernels
from flint.explaining.kernel_kinds import Kind, kind_of
from flint.explaining.meetings import Ready
from flint.mesh.ragged import Ints, row_of_entry
from flint.passes.host_lane import on_host
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.playing import Played
from flint.simulation.spans import inside, union

#: Ticks per nanosecond.
_TICKS: Final = 1000


def kernels_of(played: Played, actor: int) -> Kernels:
    """What ran on one rank's device, on a single stream.

    Args:
        played: the step.
        actor: number of its kind of rank.
    """
    info, nodes = played.everyone.info[actor], played.everyone.columns[actor]
    start, end = played.happened.start[actor], played.happened.end[actor]
    unrolled = info.unrolled
    ops = unrolled.column("op")[unrolled.template[info.emission.instance]]
    host, runs = _lanes(played, actor)
    names = unrolled.graphs[0].tables.ops
    by_name = np.array([int(kind_of(name.rpartition(": ")[2])) for name in names] or [0])
    talks = nodes.types != NodeType.COMP
    kinds = np.where(talks, Kind.COMMUNICATION, by_name[ops])
    launched = _launches(nodes.ptr, nodes.deps, host, end)
    return Kernels(
        names,
        ops[runs],
        kinds[runs],
        start[runs] // _TICKS,
        end[runs] // _TICKS - start[runs] // _TICKS,
        np.zeros(int(runs.sum()), np.int64),
        np.where(launched[runs] == NO_LAUNCH, NO_LAUNCH, launched[runs] // _TICKS),
    )


def of_host(device: Breakdown, played: Played, actor: int, ready: Ready) -> Breakdown:
    """The time of a device that is the host itself, over the whole step.

    What it does before, between and after its ops is the host's; the rest of the idle time is a
    wait for messages, or for other ranks at the end.

    Args:
        device: its time from its first op to its last.
        played: the step.
        actor: number of its kind of rank.
        ready: when each node was able to begin.
    """
    nodes = played.everyone.columns[actor]
    start, end = played.happened.start[actor], played.happened.end[actor]
    host, runs = _lanes(played, actor)
    late = np.zeros(len(start), np.int64) if nodes.delay is None else np.maximum(nodes.delay, 0)
    going_on = np.minimum(ready.over + late, start)
    spans = union(
        np.concatenate([start[host], ready.over]),
        np.concatenate([end[host], np.maximum(going_on, ready.over)]),
    )
    busy = union(start[runs], end[runs])
    under = inside(spans, busy[1]) - inside(spans, busy[0])
    waited = int((spans[1] - spans[0]).sum() - under.sum())
    whole = played.happened.ticks
    idle = whole - int((busy[1] - busy[0]).sum())
    return replace(
        device,
        seconds=whole / TICKS_PER_SECOND,
        idle_seconds=idle / TICKS_PER_SECOND,
        host_wait_seconds=waited / TICKS_PER_SECOND,
        kernel_wait_seconds=0.0,
        other_wait_seconds=(idle - waited) / TICKS_PER_SECOND,
    )


def waiting_for_host(device: Breakdown, seconds: float) -> Breakdown:
    """The time of a device whose host launches for so long that it waits in between.

    Args:
        device: its time if the host were never late.
        seconds: how long the host takes to launch everything.
    """
    late = max(0.0, seconds - device.seconds)
    return replace(
        device,
        seconds=device.seconds + late,
        idle_seconds=device.idle_seconds + late,
        host_wait_seconds=device.host_wait_seconds + late,
    )


def _lanes(played: Played, actor: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which nodes are the host's, and which run on the device; shape [nodes]."""
    info, nodes = played.everyone.info[actor], played.everyone.columns[actor]
    start, end = played.happened.start[actor], played.happened.end[actor]
    template = info.unrolled.template[info.emission.instance]
    host = np.concatenate([on_host(graph) for graph in info.unrolled.graphs])[template]
    # A RECV ends when its message arrives: until then it waits.
    received = (nodes.types == NodeType.RECV) & (nodes.ticks <= 0)
    return host, ~host & ~received & (end > start)


def _launches(ptr: Ints, deps: Ints, host: NDArray[np.bool_], end: Ints) -> Ints:
    """When the host launched each node; ``NO_LAUNCH`` if the node waits for no launch."""
    found = np.full(len(host), NO_LAUNCH, np.int64)
    launches = host[deps]
    np.maximum.at(found, row_of_entry(ptr)[launches], end[deps[launches]])
    return found
