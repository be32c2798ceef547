"""Links between the events of a profile, in addition to the nesting of ops.

The idea: a reader passes on its events (kernels, runtime calls, waits, annotations), and the result
is columns: which op launched a kernel and when, which call made a stream or the host wait for which
other stream.  Decisions are made elsewhere, in ``order``.

    links.kernel_row[0]        # the row of ``Observed`` that launched the first kernel, -1 for none
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import add
from typing import Any, NamedTuple

import numpy as np

from flint.mesh.ragged import Ints
from flint.post_execution.links import HostWait, Links, Span, StreamWait

#: Calls that make a stream or the host wait (CUDA and HIP have the same names after their
#: prefixes).
_STREAM_WAIT = re.compile(r"^(cuda|hip|cu)StreamWaitEvent")
_HOST_WAIT = re.compile(r"^(cuda|hip)DeviceSynchronize|^AscendCL@aclrtSynchronizeDevice")
#: Calls that may wait for something on a device, without recording what (OneAPI's at last).
_BLOCKING = re.compile(
    r"^(cuda|hip|cu|AscendCL@aclrt)(\w*Synchronize|Memcpy\w*|Free\w*)"
    r"|^ze\w+Synchronize|^ur(QueueFinish|EventWait|USMFree|EnqueueUSMMemcpy)",
    re.IGNORECASE,
)
#: Calls after which something runs on a device (also OneAPI's urEnqueueKernelLaunch).
_LAUNCH = re.compile(r"Launch|Memcpy|Memset")
#: Synchronisation that the profiler has resolved (``enable_cuda_sync_events``).
RESOLVED = frozenset({"cuda_sync", "hip_sync"})
#: Suffixes of the categories of runtime and driver calls.
CALLS = ("runtime", "driver")
#: The most characters of a kernel's name that are kept: templates can fill pages.
_LONGEST_NAME = 120
#: Larger numbers are not believed.
_LARGEST = 1 << 62
#: Streams of a device have smaller numbers.
_DEVICE = 1 << 40
_MOST_DEVICES = 1 << 20


def device_of(device: object) -> int:
    """The number of a device as in the trace; -1 if it has none."""
    return device if type(device) is int and 0 <= device < _MOST_DEVICES else -1


class _Call(NamedTuple):
    name: str
    thread: int
    start: int
    end: int


@dataclass
class LinksBuilder:
    """Gathers the events from a reader of Kineto's traces.

    Attributes:
        threads: host thread -> number.
        devices: device that ran something -> number.
    """

    threads: dict[object, int] = field(default_factory=dict)
    devices: dict[int, int] = field(default_factory=dict)
    _ops: list[tuple[Ints, ...]] = field(default_factory=list)
    _names: dict[str, int] = field(default_factory=dict)
    _kernels: list[tuple[Ints, ...]] = field(default_factory=list)
    _correlations: list[object] = field(default_factory=list)
    _calls: dict[int, _Call] = field(default_factory=dict)
    _waits: list[tuple[str, int, int, dict[str, Any]]] = field(default_factory=list)
    _spans: list[Span] = field(default_factory=list)
    _frames: list[Span] = field(default_factory=list)

    def add_ops(self, threads: Sequence[object], thread: Ints, columns: Sequence[Ints]) -> None:
        """Rows of ``Observed``, in their order.

        Args:
            threads: the threads that ``thread`` indexes.
            thread: thread of each row, shape [rows].
            columns: starts and ends, ns on the host, and numbers of records, 0 or -1 if missing;
                shape [rows] each.
        """
        numbers = np.array([self._thread(name) for name in threads], np.int64)
        self._ops.append((numbers[thread], *columns))

    def call(
        self, name: str, thread: object, start: int, duration: int, correlation: object
    ) -> None:
        """A call of a runtime or driver."""
        self.calls((name,), (thread,), (start,), (duration,), (correlation,))

    def calls(
        self,
        names: Sequence[str],
        threads: Sequence[object],
        starts: Sequence[int],
        durations: Sequence[int],
        correlations: Sequence[object],
    ) -> None:
        """Many of them."""
        ends = map(add, starts, durations)
        calls = map(_Call, names, map(self._thread, threads), starts, ends)
        self._calls.update(zip(map(_number, correlations), calls, strict=True))

    def add_kernels(
        self,
        columns: Sequence[Ints],
        names: Sequence[str],
        devices: Sequence[int],
        streams: Sequence[object],
        correlations: Sequence[object],
    ) -> None:
        """What ran on the device.

        Args:
            columns: rows that launched them (-1 unknown), starts and durations in ns, and bytes of
                copies (-1 unknown); shape [kernels] each.
            names, devices, streams: of each kernel.
            correlations: the profiler's numbers of the calls that launched them.
        """
        short = {
            name: self._names.setdefault(name[:_LONGEST_NAME], len(self._names))
            for name in dict.fromkeys(names)
        }
        tracks = list(zip(devices, streams, strict=True))
        places = {track: self._place(*track) for track in dict.fromkeys(tracks)}
        name = np.array([short[name] for name in names], np.int64)
        stream = np.array([places[track] for track in tracks], np.int64)
        self._kernels.append((*columns, name, stream))
        self._correlations.extend(correlations)

    def event(
        self,
        category: str,
        name: str,
        thread: object,
        start: int,
        duration: int,
        args: Mapping[str, Any],
    ) -> None:
        """An event that is neither an op nor a call, and did not run on the device."""
        if category in RESOLVED:
            self._waits.append((name, start, duration, dict(args)))
        elif category == "user_annotation":
            record = _number(args.get("Record function id"))
            self._spans.append(Span(start, start + duration, self._thread(thread), name, record))

    def frame(self, name: str, thread: object, start: int, duration: int) -> None:
        """A call of Python's."""
        self._frames.append(Span(start, start + duration, self._thread(thread), name, -1))

    @property
    def launches(self) -> int:
        """Number of calls after which something runs on a device."""
        return sum(bool(_LAUNCH.search(call.name)) for call in self._calls.values())

    def finish(
        self,
        groups: Mapping[str, tuple[int, ...]],
        steps: Sequence[tuple[int, int, str]],
        base: int,
    ) -> Links:
        """The columns; known times count from ``base``, nanoseconds."""
        self._calls.pop(-1, None)
        thread, issued, over, record = _joined(self._ops, 4)
        row, start, duration, moved, name, stream = _joined(self._kernels, 6)
        launch = list(map(self._calls.get, map(_number, self._correlations)))
        called = {call.name for call in self._calls.values()}
        blocking = {name for name in called if _BLOCKING.match(name)}
        return Links(
            thread=thread,
            issued=issued + base,
            over=over + base,
            record=np.where((record > 0) & (record < _LARGEST), record, -1),
            names=tuple(self._names),
            kernel_name=name,
            kernel_row=row,
            kernel_start=start + base,
            kernel_duration=duration,
            kernel_moved=moved,
            kernel_launch=np.array([c.start + base if c else -1 for c in launch], np.int64),
            kernel_thread=np.array([c.thread if c else -1 for c in launch], np.int64),
            kernel_stream=stream,
            stream_waits=tuple(sorted(self._stream_waits(base))),
            host_waits=tuple(sorted(self._host_waits(base))),
            blocking=tuple(
                sorted(
                    (call.start + base, call.end + base)
                    for call in self._calls.values()
                    if call.name in blocking
                )
            ),
            spans=tuple(
                sorted(s._replace(start=s.start + base, end=s.end + base) for s in self._spans)
            ),
            frames=tuple(
                sorted(f._replace(start=f.start + base, end=f.end + base) for f in self._frames)
            ),
            groups=groups,
            steps=tuple((start + base, end + base) for start, end, _ in steps),
        )

    def _thread(self, thread: object) -> int:
        return self.threads.setdefault(thread, len(self.threads))

    def _place(self, device: int, stream: object) -> int:
        text = str(stream)
        return self._stream(int(text) if text.isdecimal() and len(text) < 12 else -1, device)

    def _stream(self, number: int, device: int) -> int:
        """A stream's number among those of all devices, -1 for none.

        A device that is not named is the first.
        """
        if not 0 <= number < _DEVICE:
            return -1
        place = self.devices.setdefault(device, len(self.devices)) if device >= 0 else 0
        return number + _DEVICE * place

    def _stream_waits(self, base: int) -> list[StreamWait]:
        """The waits that name their streams; if there are none, the calls unchanged."""
        found = []
        for name, start, _, args in self._waits:
            device = device_of(args.get("device"))
            awaited = self._stream(_number(args.get("wait_on_stream")), device)
            if not name.startswith("Stream Wait") or awaited < 0:
                continue
            call = self._calls.get(_number(args.get("correlation")))
            event = self._calls.get(_number(args.get("wait_on_cuda_event_record_corr_id")))
            found.append(
                StreamWait(
                    (call.start if call else start) + base,
                    self._stream(_number(args.get("stream")), device),
                    awaited,
                    event.start + base if event else -1,
                    call.thread if call else -1,
                )
            )
        return found or [
            StreamWait(call.start + base, -1, -1, -1, call.thread)
            for call in self._calls.values()
            if _STREAM_WAIT.match(call.name)
        ]

    def _host_waits(self, base: int) -> list[HostWait]:
        found = [
            HostWait(call.start + base, call.end + base, -1)
            for call in self._calls.values()
            if _HOST_WAIT.match(call.name)
        ]
        for name, start, duration, args in self._waits:
            number = _number(args.get("wait_on_stream", args.get("stream")))
            stream = self._stream(number, device_of(args.get("device")))
            if name.startswith(("Event Sync", "Stream Sync")) and stream >= 0:
                found.append(HostWait(start + base, start + duration + base, stream))
        return found


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < _LARGEST else -1


def _joined(parts: Sequence[tuple[Ints, ...]], width: int) -> tuple[Ints, ...]:
    """Columns from parts of each."""
    nothing = (np.zeros(0, np.int64),) * width
    return tuple(np.concatenate(some) for some in zip(nothing, *parts, strict=True))
