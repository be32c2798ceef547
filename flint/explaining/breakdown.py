"""Where a device's time goes, in the terms of HolisticTraceAnalysis (HTA).

The idea: a device's time from its first kernel to the end of its last is idle, where nothing runs,
compute, where a compute kernel does, or neither: communication and copies that no compute covers.
A stream's idle time is due to the host if the next kernel was launched after the previous one
ended, to the launch itself if the gap is shorter than ``LAUNCH_GAP``, and otherwise to something
else, such as an event of another stream (hta/analyzers/breakdown_analysis.py, version 0.5.0).

    breakdown(events).compute_seconds
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.explaining.kernel_kinds import Kind
from flint.graph.stated import UNKNOWN
from flint.mesh.ragged import Ints
from flint.observed.exchanging_kernels import exchanges

#: Shorter gaps between kernels of a stream are due to launching; nanoseconds (HTA's 30 us).
LAUNCH_GAP: Final = 30_000
#: The time of an unknown launch.
NO_LAUNCH: Final = -1


class Idle(IntEnum):
    """What a stream waited for."""

    HOST_WAIT = 0
    KERNEL_WAIT = 1
    OTHER = 2


@dataclass(frozen=True, eq=False, slots=True)
class Kernels:
    """What ran on a device.

    Attributes:
        names: the strings that ``name`` indexes.
        name, kind, start, duration, stream: nanoseconds and ``Kind``, shape [kernels].
        launched: nanosecond of the call that launched each kernel, ``NO_LAUNCH`` if unknown, shape
            [kernels].
    """

    names: Sequence[str]
    name: Ints
    kind: Ints
    start: Ints
    duration: Ints
    stream: Ints
    launched: Ints

    def __len__(self) -> int:
        return len(self.start)

    def only(self, chosen: NDArray[np.bool_]) -> Kernels:
        """A selection of the events."""
        return Kernels(
            self.names, self.name[chosen], self.kind[chosen], self.start[chosen],
            self.duration[chosen], self.stream[chosen], self.launched[chosen],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class StreamIdle:
    """How long a stream waited between its kernels, and for what; in seconds."""

    stream: int
    host_wait_seconds: float
    kernel_wait_seconds: float
    other_seconds: float


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Kernels of one name.

    Attributes:
        name, kind: name and kind (in lower case) of the kernels.
        count: how many ran.
        seconds, mean_seconds, least_seconds, most_seconds, deviation_seconds: sum, mean, minimum,
            maximum and the sample's standard deviation (0 for a single kernel).
    """

    name: str
    kind: str
    count: int
    seconds: float
    mean_seconds: float
    least_seconds: float
    most_seconds: float
    deviation_seconds: float


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Where one device's time goes; in seconds.

    Attributes:
        seconds: from the start of the first kernel to the end of the last.
        compute_seconds: while a compute kernel runs.
        exchange_seconds: while one of these runs that exchanges data between ranks, as those of
            DeepEP and NVSHMEM, whose messages no op records.
        non_compute_seconds: while something runs, but no compute kernel.
        idle_seconds: while nothing runs.
        host_wait_seconds, kernel_wait_seconds, other_wait_seconds: the idle time until the kernel
            that ends it was launched; the rest, if it is short; and if it is long.
        communication_seconds: while communication runs, alone or not.
        exposed_communication_seconds: while communication runs, but no compute kernel.
        memory_seconds: while copies or fills run, but neither compute nor communication.
        overlap: share of the communication time in which compute kernels run, too; unknown without
            communication.
        together: kinds that run at the same time ("computation overlapping communication") ->
            seconds; these add up to the busy time, except for kernels of no kind.
        idle: idle time of each stream, if streams are known.
        kernels: by name, most time first.
    """

    seconds: float
    compute_seconds: float
    exchange_seconds: float
    non_compute_seconds: float
    idle_seconds: float
    host_wait_seconds: float
    kernel_wait_seconds: float
    other_wait_seconds: float
    communication_seconds: float
    exposed_communication_seconds: float
    memory_seconds: float
    overlap: float
    together: dict[str, float]
    idle: tuple[StreamIdle, ...]
    kernels: tuple[KernelTime, ...]


def breakdown(events: Kernels, gaps: Kernels | None = None) -> Breakdown:
    """Where a device's time goes.

    Args:
        events: what ran on it, at least one.
        gaps: the events with known streams, whose gaps are counted.
    """
    spans = {kind: _merged(events.only(events.kind == kind)) for kind in Kind}
    busy = _merged(events)
    waits = _device_idle(events, busy)
    whole = int(busy[1][-1] - busy[0][0])
    compute = _length(spans[Kind.COMPUTATION])
    idle = whole - _length(busy)
    together = _together(spans)
    exchange = np.array([exchanges(name.rpartition(": ")[2]) for name in events.names])
    own = events.only((events.kind == Kind.COMPUTATION) & exchange[events.name])
    communication = _length(spans[Kind.COMMUNICATION])
    covered = {Kind.COMPUTATION, Kind.COMMUNICATION}
    both = sum(ticks for kinds, ticks in together.items() if covered <= set(kinds))
    return Breakdown(
        seconds=whole / 1e9,
        compute_seconds=compute / 1e9,
        exchange_seconds=_length(_merged(own)) / 1e9,
        non_compute_seconds=(whole - compute - idle) / 1e9,
        idle_seconds=idle / 1e9,
        host_wait_seconds=waits[Idle.HOST_WAIT],
        kernel_wait_seconds=waits[Idle.KERNEL_WAIT],
        other_wait_seconds=waits[Idle.OTHER],
        communication_seconds=communication / 1e9,
        exposed_communication_seconds=(communication - both) / 1e9,
        memory_seconds=together.get((Kind.MEMORY,), 0) / 1e9,
        overlap=both / communication if communication else UNKNOWN,
        together={
            " overlapping ".join(kind.name.lower() for kind in kinds): ticks / 1e9
            for kinds, ticks in sorted(together.items(), key=lambda item: -item[1])
        },
        idle=_idle(gaps) if gaps is not None else (),
        kernels=_by_name(events),
    )


def _merged(events: Kernels) -> tuple[Ints, Ints]:
    """Start and end of the spans in which some kernel runs, in ascending order.

    Kernels with zero or negative time are separate spans, as in HTA, where rounding a kernel
    inwards to whole microseconds may end it before it begins.
    """
    order = np.argsort(events.start, kind="stable")
    start, end = events.start[order], (events.start + events.duration)[order]
    if not len(start):
        return start, end
    new = np.append(True, start[1:] > np.maximum.accumulate(end)[:-1])
    first = np.flatnonzero(new)
    return start[first], np.maximum.reduceat(end, first)


def _length(spans: tuple[Ints, Ints]) -> int:
    return int((spans[1] - spans[0]).sum())


def _together(spans: dict[Kind, tuple[Ints, Ints]]) -> dict[tuple[Kind, ...], int]:
    """Nanoseconds in which exactly these kinds run at the same time."""
    known = [kind for kind in spans if kind != Kind.OTHER]
    times = np.concatenate([side for kind in known for side in spans[kind]])
    values = np.concatenate(
        [
            np.full(len(side), sign << kind, np.int64)
            for kind in known
            for side, sign in zip(spans[kind], (1, -1), strict=True)
        ]
    )
    order = np.argsort(times, kind="stable")
    running = np.cumsum(values[order])[:-1]
    lengths = np.diff(times[order])
    sums = np.bincount(np.maximum(running, 0), weights=lengths, minlength=1)
    return {
        tuple(kind for kind in known if state >> kind & 1): int(ticks)
        for state, ticks in enumerate(sums.tolist())
        if state and ticks
    }


def _idle(events: Kernels) -> tuple[StreamIdle, ...]:
    """Gaps between the kernels of each stream, by what the next kernel waited for."""
    found = []
    for stream in np.unique(events.stream).tolist():
        own = events.only(events.stream == stream)
        order = np.argsort(own.start, kind="stable")
        before = (own.start + own.duration)[order][:-1]
        sums = _by_wait(before, own.start[order][1:], own.launched[order][1:])
        found.append(StreamIdle(stream, *sums))
    return tuple(found)


def _device_idle(events: Kernels, busy: tuple[Ints, Ints]) -> list[float]:
    """Seconds in which nothing ran on the device, by ``Idle``: the host's until the launch."""
    order = np.lexsort((events.launched, events.start))
    first = order[np.searchsorted(events.start[order], busy[0][1:])]
    before, start, launched = busy[1][:-1], busy[0][1:], events.launched[first]
    ready = np.where(launched == NO_LAUNCH, before, np.clip(launched, before, start))
    _, launching, other = _by_wait(ready, start, np.full_like(start, NO_LAUNCH))
    return [int((ready - before).sum()) / 1e9, launching, other]


def _by_wait(before: Ints, start: Ints, launched: Ints) -> list[float]:
    """Seconds of gaps by ``Idle``.

    Args:
        before, start, launched: when each gap begins and ends, and when the kernel that ends it was
            launched; shape [gaps].
    """
    gap = start - before
    host = (launched != NO_LAUNCH) & (launched > before)
    short = ~host & (gap < LAUNCH_GAP)
    kinds = np.where(host, Idle.HOST_WAIT, np.where(short, Idle.KERNEL_WAIT, Idle.OTHER))
    sums: list[float] = (np.bincount(kinds, weights=gap, minlength=len(Idle)) / 1e9).tolist()
    return sums


def _by_name(events: Kernels) -> tuple[KernelTime, ...]:
    """Totals of the kernels with the same name and kind."""
    if not len(events):
        return ()
    key, number = np.unique(events.name * len(Kind) + events.kind, return_inverse=True)
    seconds = events.duration / 1e9
    count = np.bincount(number)
    total = np.bincount(number, weights=seconds)
    mean = total / count
    least = np.full(len(key), np.inf)
    np.minimum.at(least, number, seconds)
    most = np.full(len(key), -np.inf)
    np.maximum.at(most, number, seconds)
    squares = np.bincount(number, weights=(seconds - mean[number]) ** 2)
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    return tuple(
        KernelTime(
            events.names[key[i] // len(Kind)], Kind(int(key[i]) % len(Kind)).name.lower(),
            int(count[i]), float(total[i]), float(mean[i]), float(least[i]), float(most[i]),
            float(deviation[i]),
        )
        for i in np.argsort(-total, kind="stable").tolist()
    )  # fmt: skip
