"""What ties the events of a profile to each other, as columns beside its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from flint.mesh.ragged import Ints


class StreamWait(NamedTuple):
    """A stream waits for what another one has been given so far.

    Attributes:
        when: the call that makes it wait, ns on the host.
        stream: who waits; -1 where the trace does not say.
        awaited: the other stream; -1 where the trace does not say.
        recorded: the call that recorded the event waited for, ns; -1 where the trace has none.
        thread: the host thread that calls; -1 where the trace does not say.
    """

    when: int
    stream: int
    awaited: int
    recorded: int
    thread: int


class HostWait(NamedTuple):
    """The host waits for a stream.

    Attributes:
        start, end: ns on the host.
        stream: the one waited for; -1 for all.
    """

    start: int
    end: int
    stream: int


class Span(NamedTuple):
    """An annotation.

    Attributes:
        start, end: ns on the host.
        thread: number of the host thread.
        name: its text.
        record: the profiler's number of it, -1 for none.
    """

    start: int
    end: int
    thread: int
    name: str
    record: int


@dataclass(frozen=True, eq=False)
class Links:
    """Columns beside the ``Observed`` of one trace.

    Attributes:
        thread, issued, over, record: per row: host thread, begin and end on the host (ns), the
            profiler's number of the op that execution traces have too (-1: none); shape [rows].
        names: what ``kernel_name`` points into.
        kernel_name, kernel_row: per kernel its name, and the op that launched it (-1 for none).
        kernel_start, kernel_duration: ns on the device.
        kernel_launch: begin of the call that launched it, ns on the host; -1 unknown.
        kernel_thread: the thread that called, -1 unknown.
        kernel_stream: its stream's number in the trace, as the profiler writes it; those of
            further devices, from ``_DEVICE`` on, device by device.
        stream_waits, host_waits: synchronisation, in order of time.
        blocking: begin and end of calls that may have waited for a device, in order of time.
        spans: annotations, in order of time.
        frames: Python's calls, where they were recorded, in order of time.
        groups: process group's name -> ranks.
        steps: begin and end of each step on the host, ns; empty where none is marked.
    """

    thread: Ints
    issued: Ints
    over: Ints
    record: Ints
    names: tuple[str, ...]
    kernel_name: Ints
    kernel_row: Ints
    kernel_start: Ints
    kernel_duration: Ints
    kernel_launch: Ints
    kernel_thread: Ints
    kernel_stream: Ints
    stream_waits: tuple[StreamWait, ...]
    host_waits: tuple[HostWait, ...]
    blocking: tuple[tuple[int, int], ...]
    spans: tuple[Span, ...]
    frames: tuple[Span, ...]
    groups: Mapping[str, tuple[int, ...]]
    steps: tuple[tuple[int, int], ...]
