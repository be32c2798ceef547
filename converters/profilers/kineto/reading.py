"""The events of a Kineto trace, as far as they are needed, column by column of the file.

The idea: one pass over the file keeps ops, kernels, calls of the runtime, steps and gloo's own
work, apart by process where several were merged.  An event's arguments stay text until its category
says which of them are wanted; what ops say (shapes, types, groups) is compared as text and decoded
once, because steps repeat themselves.

    [events] = read_events(JsonTrace.read(Path("rank0.json.gz")), linked=False).of
    events.said[events.ops[0].said]["Input Dims"]
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from flint.converters.profilers.json_traces import JsonTrace
from flint.converters.profilers.kineto.events import (
    DEVICE,
    Events,
    GloosWork,
    Kernel,
    LibraryCall,
    Op,
    times_of,
)
from flint.converters.profilers.kineto.processes import Processes, Track
from flint.converters.profilers.torch_ops import dtype_of
from flint.errors import FlintError
from flint.post_execution.host_device_links import CALLS, RESOLVED, LinksBuilder, device_of
from flint.post_execution.source_lines import is_told

#: Categories of libkineto's ActivityType.cpp, and those of older versions.
_OPS = frozenset({"cpu_op", "operator"})
_RUNTIME = frozenset(
    {
        "cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "hip_driver", "xpu_runtime",
        "xpu_driver", "privateuse1_runtime", "privateuse1_driver", "mtia_runtime",
    }
)  # fmt: skip
#: What says more of a process than its number.
_LABELS = ("process_name", "process_labels")
_PLAIN = (int, str, float, type(None))
_STEP, _PYTHON, _ANNOTATION = "ProfilerStep", "python_function", "user_annotation"
#: Those whose arguments say something, beside calls.
_KEPT = RESOLVED | {_ANNOTATION}
#: Annotations of PyTorch's process groups of NCCL, also where the library is RCCL.
_LIBRARY, _GLOO = "nccl:", "gloo:"
_ABSENT: Final = msgspec.Raw(b"")


Kind = TypeVar("Kind")


class _Event(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = ""
    name: Any = ""
    ts: Any = None
    dur: Any = 0
    pid: Any = None
    tid: Any = None
    args: msgspec.Raw = _ABSENT


class _OpArguments(msgspec.Struct, gc=False):
    external: Any = msgspec.field(name="External id", default=msgspec.UNSET)
    old_external: Any = msgspec.field(name="external id", default=None)
    record: Any = msgspec.field(name="Record function id", default=None)
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=_ABSENT)
    types: msgspec.Raw = msgspec.field(name="Input type", default=_ABSENT)
    concrete: msgspec.Raw = msgspec.field(name="Concrete Inputs", default=_ABSENT)
    collective: msgspec.Raw = msgspec.field(name="Collective name", default=_ABSENT)
    dtype: msgspec.Raw = _ABSENT
    elements: msgspec.Raw = msgspec.field(name="In msg nelems", default=_ABSENT)
    size: msgspec.Raw = msgspec.field(name="Group size", default=_ABSENT)
    ranks: msgspec.Raw = msgspec.field(name="Process Group Ranks", default=_ABSENT)
    group: msgspec.Raw = msgspec.field(name="Process Group Name", default=_ABSENT)
    start: msgspec.Raw = msgspec.field(name="Global rank start", default=_ABSENT)
    stride: msgspec.Raw = msgspec.field(name="Global rank stride", default=_ABSENT)
    source: msgspec.Raw = msgspec.field(name="Src Rank", default=_ABSENT)
    target: msgspec.Raw = msgspec.field(name="Dst Rank", default=_ABSENT)


class _KernelArguments(msgspec.Struct, gc=False):
    external: Any = msgspec.field(name="External id", default=msgspec.UNSET)
    old_external: Any = msgspec.field(name="external id", default=None)
    correlation: Any = None
    device: Any = None
    stream: Any = None


#: What is kept of an op's arguments, as the file calls it; most ops say what others have said.
_SAID: Final = {
    field.encode_name: field.name
    for field in msgspec.structs.fields(_OpArguments)
    if field.type is msgspec.Raw
}
_said = attrgetter(*_SAID.values())
_decode: Final = msgspec.json.Decoder().decode


class _Arguments(Generic[Kind]):
    """Decodes the arguments of events of one kind."""

    def __init__(self, path: Path, kind: Callable[[], Kind]) -> None:
        self._path, self._nothing = path, kind
        self._decode: Callable[[Any], Kind] = msgspec.json.Decoder(kind).decode

    def of(self, event: _Event) -> Kind:
        """The event's; those of a damaged file that are no object say nothing.

        Raises:
            FlintError: they cannot be decoded.
        """
        if event.args is _ABSENT:
            return self._nothing()
        try:
            return self._decode(event.args)
        except msgspec.MsgspecError:
            return self._again(bytes(event.args))

    def _again(self, text: bytes) -> Kind:
        """By the decoder that takes any number, and explains."""
        try:
            found = json.loads(text)
            return self._decode(msgspec.json.encode(found if isinstance(found, dict) else {}))
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            shown = text[:80].decode(errors="replace")
            raise FlintError(f"{self._path}: damaged arguments ({error}): {shown}") from error


class ReadEvents(NamedTuple):
    """What a file has, by process.

    Attributes:
        of: the events of each process, in the order of the file.
        names: what the file calls these processes.
        ranks: of each; None where the file does not tell.
    """

    of: list[Events]
    names: list[object]
    ranks: list[int] | None


class _Mine(NamedTuple):
    """What is kept of a process, and of each of its kernels the process that it names."""

    events: Events
    tracks: list[object]


class _Other(NamedTuple):
    """No op and no kernel: whose it is may be known at the end of the file only."""

    category: str
    name: str
    thread: object
    start: int
    duration: int
    args: dict[str, Any]


def read_events(trace: JsonTrace, *, linked: bool) -> ReadEvents:
    """The events of a file; all of it is read.

    Args:
        trace: the file.
        linked: whether what ties events to each other is asked for.

    Raises:
        FlintError: it is cut off or damaged, an event has no time, or of several processes nothing
            tells which of them used a device.
    """
    said: list[dict[str, Any]] = []
    processes = Processes(
        trace.path,
        lambda: _Mine(Events([], [], {}, [], [], said, {}, LinksBuilder() if linked else None), []),
    )
    names: dict[str, str] = {}
    numbers: dict[bytes, int] = {}
    places: dict[str, bool] = {}
    held: list[tuple[Track, _Other]] = []
    of_op = _Arguments(trace.path, _OpArguments)
    of_kernel = _Arguments(trace.path, _KernelArguments)
    of_other = _Arguments(trace.path, dict[str, Any])
    process: object = _ABSENT
    at = processes.all[0]
    found, tracks = at.mine
    in_place = True
    for event in trace.records("traceEvents", _Event, "an event"):
        if event.ph != "X":
            if event.ph == "M" and event.name in _LABELS:
                processes.label(_hashable(event.pid), of_other.of(event).values())
            continue
        category = str(event.cat).lower()
        start, duration = times_of(event, trace.path)
        name = str(event.name)
        name = names.setdefault(name, name)
        if category in DEVICE:
            kernel = of_kernel.of(event)
            external = kernel.old_external if kernel.external is msgspec.UNSET else kernel.external
            found.kernels.append(
                Kernel(
                    start, duration, device_of(kernel.device), str(kernel.stream), name,
                    _hashable(external), _hashable(kernel.correlation),
                )
            )  # fmt: skip
            tracks.append(event.pid)
            in_place &= process is not _ABSENT
            continue
        if category in _OPS:
            if event.pid != process:
                process = event.pid
                at = processes.of(_hashable(process), partial(_rank_in, of_other, event))
                found, tracks = at.mine
            if name.startswith(_STEP):
                found.steps.append((start, start + duration, name))
                continue
            op = of_op.of(event)
            parts = _said(op)
            key = b"\n".join(parts)
            number = numbers.setdefault(key, len(said))
            if number == len(said):
                said.append(_decoded(parts, trace.path))
            external = op.old_external if op.external is msgspec.UNSET else op.external
            record = op.record if type(op.record) is int else -1
            found.ops.append(
                Op(start, duration, _hashable(event.tid), name, _hashable(external), record, number)
            )
            continue
        args: dict[str, Any] = {}
        if category in _KEPT or category.endswith(CALLS):
            args = of_other.of(event)
        elif not linked or category != _PYTHON or not _told(name, places):
            continue
        other = _Other(category, name, _hashable(event.tid), start, duration, args)
        if event.pid == process:
            _add(found, other)
        else:
            held.append((Track(at.number, _hashable(event.pid)), other))
    return _by_process(processes, held, in_place=in_place)


def _rank_in(of_other: _Arguments[dict[str, Any]], event: _Event) -> object:
    """The rank that tools which merge files add to what an event says."""
    return of_other.of(event).get("rank")


def _by_process(
    processes: Processes[_Mine], held: list[tuple[Track, _Other]], *, in_place: bool
) -> ReadEvents:
    """Everything with the process that it belongs to; those without any work are left out."""
    if not processes.met:  # no ops at all: who calls is who works
        for track, other in held:
            if other.category.endswith(CALLS):
                processes.of(track.name, partial(other.args.get, "rank"))
        in_place = False
    mine = [process.mine for process in processes.all]
    owners = _move_kernels(processes, mine, held, in_place=in_place) if len(mine) > 1 else {}
    for track, other in held:
        owner = processes.named(track.name)
        number = owners.get(track, track.before) if owner is None else owner.number
        _add(mine[number].events, other)
    for events, _ in mine:
        for calls in events.library.values():
            calls.sort(key=attrgetter("start"))
        events.steps.sort()
        events.gloo.sort(key=lambda entry: (entry[0], entry[1].start))
    working = [
        process
        for process in processes.all
        if process.mine.events.ops or process.mine.events.kernels
    ] or processes.all[:1]
    return ReadEvents(
        [process.mine.events for process in working],
        [process.name for process in working],
        processes.ranks(working),
    )


def _move_kernels(
    processes: Processes[_Mine],
    mine: list[_Mine],
    held: list[tuple[Track, _Other]],
    *,
    in_place: bool,
) -> dict[Track, int]:
    """Give what ran on devices to the process that launched it; returns whose each track is."""
    kernels: dict[Track, list[Kernel]] = defaultdict(list)
    for number, (events, tracks) in enumerate(mine):
        for kernel, name in zip(events.kernels, tracks, strict=True):
            kernels[Track(number, _hashable(name))].append(kernel)
        events.kernels.clear()
    launched = {
        track: [(kernel.correlation, kernel.start) for kernel in some]
        for track, some in kernels.items()
    }
    calls = [{call: begin for call, (_, begin) in events.runtime.items()} for events, _ in mine]
    for track, other in held:
        call = _hashable(other.args.get("correlation"))
        owner = processes.named(track.name)
        if other.category in RESOLVED:
            launched.setdefault(track, []).append((call, other.start))
        elif owner is not None and other.category in _RUNTIME:
            calls[owner.number][call] = other.start
    owners = processes.owners(launched, calls, in_place=in_place)
    for track, some in kernels.items():
        mine[owners[track]].events.kernels.extend(some)
    return owners


def _add(found: Events, event: _Other) -> None:
    """Steps, calls, synchronisation, calls of Python's, with the process that they belong to."""
    category, name, thread, start, duration, args = event
    if found.links is not None and category == _PYTHON:
        found.links.frame(name, thread, start, duration)
    elif found.links is not None:
        found.links.event(category, name, thread, start, duration, args)
    if category in _RUNTIME:
        found.runtime[_hashable(args.get("correlation"))] = thread, start
    elif category == _ANNOTATION and name.startswith(_STEP):
        found.steps.append((start, start + duration, name))
    elif category == _ANNOTATION and name.startswith((_LIBRARY, _GLOO)):
        dims, types = args.get("Input Dims"), args.get("Input type")
        call = LibraryCall(start, start + duration, name.partition(":")[2], dims, types)
        if name.startswith(_GLOO):
            _add_gloo(found, thread, call, args.get("Record function id"))
        else:
            found.library.setdefault(thread, []).append(call)


def _told(name: str, known: dict[str, bool]) -> bool:
    """Whether a call of Python's names a place; names repeat themselves."""
    told = known.get(name)
    if told is None:
        told = known[name] = is_told(name)
    return told


def _decoded(parts: Sequence[msgspec.Raw], path: Path) -> dict[str, Any]:
    """What an op says, by the names that the file has for it."""
    given = [pair for pair in zip(_SAID, parts, strict=True) if pair[1] is not _ABSENT]
    try:
        return {name: _decode(part) for name, part in given}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:  # by the decoder that takes any number, and explains
        return {name: json.loads(bytes(part)) for name, part in given}
    except (ValueError, RecursionError) as error:
        raise FlintError(f"{path}: damaged arguments of an op ({error})") from error


def _add_gloo(found: Events, thread: object, call: LibraryCall, record: object) -> None:
    """Gloo's own work, and the number of its record, 0 where it has none."""
    types = call.types
    dtype = dtype_of(types[0]) if isinstance(types, list) and types else ""
    work = GloosWork(call.start, call.end, dtype, _elements(call.dims), thread, call)
    found.gloo.append((record if type(record) is int else 0, work))


def _hashable(value: object) -> object:
    """Numbers and texts as they are, anything else that a damaged file has as its text."""
    if type(value) is int:
        return value
    return value if isinstance(value, _PLAIN) else str(value)


def _elements(dims: object) -> int:
    """Elements of all tensors of an annotation; -1 where it does not say."""
    shapes = dims if isinstance(dims, list) else []
    whole = [shape for shape in shapes if isinstance(shape, list)]
    if not whole or not all(type(size) is int for shape in whole for size in shape):
        return -1
    return sum(math.prod(shape) for shape in whole)
