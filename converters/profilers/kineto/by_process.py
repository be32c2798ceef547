"""Events without a category: the process that they name says what they are.

The idea: PyTorch's profiler for Ascend's NPUs (``trace_view.json``) writes host ops as Kineto does,
but puts what ran on the device into a process "Ascend Hardware", a line per stream, and the calls
of its runtime into "CANN".  Arrows (``ph`` "s" and "f") lead to each device event: "HostToDevice"
from the call that launched it, on a thread of its own, and "async_npu" from the op.  PyTorch's
profiler before Kineto has the processes "CPU functions" and "CUDA functions".  AMD's rocprof has
one for each GPU, with a line per stream, and one for copies; their arguments have nanoseconds.
rocmProfileData's ``rpd2tracing.py`` has one for each GPU, too; both have arrows from HIP's calls.

    kept = ByProcess(path)
    kept.take(events)                                     # in the order of the file
    found = kept.sorted(lambda process: ["Ascend Hardware"])
    found.of["kernel"], found.launches[8]                 # events; the launch of connection 8
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from flint.converters.profilers.kineto.arguments import Event
from flint.converters.profilers.kineto.hip_calls import ARROWS, CALLS, At, at, number_calls

#: What the events of a process are.
_CATEGORIES: Final = {
    "CPU functions": "cpu_op",
    "Ascend Hardware": "kernel",
    "CANN": "cann_runtime",
    "COPY": "gpu_memcpy",
}
#: What the events of a process are that calls HIP.
_HIP, _HIP_CALL = "CPU HIP API", "hip_runtime"
#: AMD's copies, by the names that Kineto gives them.
COPIES: Final = {
    f"Copy{since}To{to}": f"Memcpy {since[0]}to{to[0]}"
    for since in ("Host", "Device")
    for to in ("Host", "Device")
}
#: One GPU's process in a file of rocprof's.
_GPU = re.compile(r"GPU(\d{1,4})")
#: Processes whose events are times of others, or of none: they are counted.
LEFT_OUT: Final = {
    "CUDA functions": "times on a device that PyTorch's profiler before Kineto took around ops: "
    "only the host's time is known",
    "Communication": "communications of HCCL: what they run on the device stays, as kernels",
    "HCCL": "communications of HCCL: what they run on the device stays, as kernels",
}
#: Events between the calls of a thread that calls HIP.
_RANGES: Final = (
    "ranges and other events of the host in JSON of AMD's tracers: left out; flint convert reads "
    "ranges in the database (.rpd) that it was made of"
)
#: Arrows to events on a device: from the call that launched it, and from the op.
_LAUNCH, _OP = "HostToDevice", "async_npu"
_ARROWS: Final = {*ARROWS, _LAUNCH, _OP}
#: Calls of Ascend's library of operators, recorded as ops within PyTorch's own.
CALL_AS_OP: Final = "aclnn"
#: Tasks on a device in which it only waits, or tells others of an event.
_NO_WORK = ("EVENT_", "NOTIFY_")
#: Longer numbers are no times.
_DIGITS = 20


class Place(NamedTuple):
    """A moment of a thread: what the file calls the thread, and microseconds."""

    thread: object
    begin: Any


class Sorted(NamedTuple):
    """Events by their category.

    Attributes:
        of: category -> events.
        left_out: why events have none -> how many.
        launches: connection of a device event -> the call that launched it.
        ops: connection of a device event -> the begin of the op that it belongs to.
    """

    of: dict[str, list[Event]]
    left_out: dict[str, int]
    launches: dict[object, Place]
    ops: dict[object, Place]


class _Task(msgspec.Struct, gc=False):
    """Arguments of an event of Ascend's."""

    connection: Any = msgspec.field(name="connection_id", default=None)
    kind: Any = msgspec.field(name="Task Type", default="")
    device: Any = msgspec.field(name="dev-id", default=None)
    begin: Any = msgspec.field(name="BeginNs", default=None)
    end: Any = msgspec.field(name="EndNs", default=None)


class ByProcess:
    """The events without a category of a file, and the arrows between them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._events: list[Event] = []
        self._from: dict[tuple[str, object], Event] = {}
        self._to: list[tuple[str, object, At]] = []

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._events or self._from or self._to)

    def take(self, events: Iterable[Event]) -> None:
        """Events without a category, or arrows."""
        for event in events:
            if event.ph == "X":
                self._events.append(event)
            elif event.cat in _ARROWS:
                number = str(event.id)
                if event.ph == "s":
                    self._from[event.cat, number] = event
                elif event.ph in ("f", "t"):
                    self._to.append((event.cat, number, at(event)))

    def sorted(self, names_of: Callable[[object], Iterable[str]]) -> Sorted:
        """All of them; ``names_of``: the file's names for a process."""
        found = Sorted({}, {}, {}, {})
        connections: dict[At, object] = {}
        numbers = self._number_calls(found, names_of)
        for event in self._events:
            if event.cat == _HIP_CALL:
                continue
            for name in (str(event.pid), *names_of(event.pid)):
                if name in LEFT_OUT:
                    why = LEFT_OUT[name]
                    found.left_out[why] = found.left_out.get(why, 0) + 1
                gpu = _GPU.fullmatch(name)
                category = "kernel" if gpu else _CATEGORIES.get(name)
                if category is None:
                    continue
                if category != "cpu_op":
                    task = _task(event)
                    if str(task.kind).upper().startswith(_NO_WORK):
                        break
                    if copy := COPIES.get(str(event.name)):
                        event.name, category = copy, "gpu_memcpy"
                    place = at(event)
                    connections[place] = task.connection
                    of = {
                        "correlation": numbers.get(place, task.connection),
                        "device": _number(gpu[1] if gpu else task.device),
                    }
                    event.args = msgspec.Raw(msgspec.json.encode(of))
                    _set_times(event, _number(task.begin), _number(task.end))
                event.cat = category
                found.of.setdefault(category, []).append(event)
                break
        for kind, number, place in self._to:
            source, connection = self._from.get((kind, number)), connections.get(place)
            if source is not None and type(connection) is int:
                begin = Place(source.tid, source.ts)
                (found.launches if kind == _LAUNCH else found.ops)[connection] = begin
        return found

    def _number_calls(
        self, found: Sorted, names_of: Callable[[object], Iterable[str]]
    ) -> dict[At, int]:
        """Calls of HIP; the numbers of those that launched something, by where it began."""
        ends = [(place, (kind, number)) for kind, number, place in self._to if kind in ARROWS]
        arrows = {place: self._from[key] for place, key in ends if key in self._from}
        hosts = {str(arrow.pid) for arrow in arrows.values()}
        hosts |= {str(e.pid) for e in self._events if _HIP in names_of(e.pid)}
        ran = [event for event in self._events if str(event.pid) in hosts]
        if not ran:
            return {}
        calls = [event for event in ran if str(event.name).startswith(CALLS)]
        if ranges := len(ran) - len(calls):
            found.left_out[_RANGES] = ranges
        for event in ran:
            event.cat = _HIP_CALL
        found.of[_HIP_CALL] = calls
        for event in calls:
            task = _task(event)
            _set_times(event, _number(task.begin), _number(task.end))
        return number_calls(calls, arrows, self._path)


def _number(value: object) -> int | None:
    """A whole number, which rocprof writes as text; None for anything else."""
    text = str(value)
    return int(text) if text.isdecimal() and len(text) < _DIGITS else None


def _set_times(event: Event, begin: int | None, end: int | None) -> None:
    """Give an event its exact times in nanoseconds, if they are known."""
    if begin is not None and end is not None and begin <= end:
        event.ts, event.dur = (f"{ns // 1000}.{ns % 1000:03d}" for ns in (begin, end - begin))


def _task(event: Event) -> _Task:
    try:
        return msgspec.json.decode(event.args, type=_Task)
    except msgspec.MsgspecError:  # none, or of a damaged file
        return _Task()
