"""Links between the events of a profile, as columns in addition to its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from flint.mesh.ragged import Ints


class StreamWait(NamedTuple):
    """A stream waits for everything issued to another one so far.

    Attributes:
        when: the call that makes it wait, ns on the host.
        stream: the waiting stream; -1 if not recorded.
        awaited: the other stream; -1 if not recorded.
        recorded: the call that recorded the awaited event, ns; -1 if the trace has none.
        thread: the calling host thread; -1 if not recorded.
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
        stream: the awaited stream; -1 for all.
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
        record: its number in the profile, -1 for none.
    """

    start: int
    end: int
    thread: int
    name: str
    record: int


@dataclass(frozen=True, eq=False)
class Links:
    """Columns in addition to the ``Observed`` of one trace.

    Attributes:
        thread, issued, over, record: per row: host thread, start and end on the host (ns), the
            profiler's number of the op, which execution traces also have (-1: none); shape [rows].
        names: the strings that ``kernel_name`` indexes.
        kernel_name, kernel_row: per kernel, its name, and the op that launched it (-1 for none).
        kernel_start, kernel_duration: ns on the device.
        kernel_moved: bytes that a copy or fill moves, -1 if not recorded, and for kernels.
        kernel_launch: start of the call that launched it, ns on the host; -1 if unknown.
        kernel_thread: the calling thread, -1 if unknown.
        kernel_stream: its stream's number in the trace, as written by the profiler; for further
            devices from ``_DEVICE`` on, device by device.
        stream_waits, host_waits: synchronisation, in order of time.
        blocking: start and end of calls that may have waited for a device, in order of time.
        spans: annotations, in order of time.
        frames: Python's calls, if recorded, in order of time.
        groups: process group's name -> ranks.
        steps: start and end of each step on the host, ns; empty if none is marked.
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
    kernel_moved: Ints
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
