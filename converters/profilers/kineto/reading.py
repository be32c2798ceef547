"""The needed events of a Kineto trace.

The idea: one pass over the file keeps ops, kernels, runtime calls, steps and gloo's own work,
separately by process if several were merged.  An event's arguments stay text until its category
shows which of them are needed; those of ops (shapes, types, groups) are compared as text and
decoded once, because steps repeat.

    [events] = read_events(JsonTrace.read(Path("rank0.json.gz")), linked=False).of
    events.arguments[events.ops[0].arguments]["Input Dims"]
"""

from __future__ import annotations

from collections import defaultdict
from enum import IntEnum
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from flint.converters.profilers.json_traces import JsonTrace
from flint.converters.profilers.kineto.arguments import (
    ABSENT,
    Arguments,
    CallArguments,
    Event,
    KernelArguments,
    OpArguments,
    decoded,
    fields_of,
)
from flint.converters.profilers.kineto.events import DEVICE, LATEST, Events, Kernel, Op, times_of
from flint.converters.profilers.kineto.kept import (
    ANNOTATION,
    PYTHON,
    STEP,
    Other,
    add,
    add_call,
    hashable,
    moved_bytes,
)
from flint.converters.profilers.kineto.processes import Processes, Track
from flint.post_execution.host_device_links import CALLS, RESOLVED, LinksBuilder, device_of
from flint.post_execution.source_lines import names_line

#: Categories from libkineto's ActivityType.cpp, and those of older versions.
_OPS = frozenset({"cpu_op", "operator"})
#: Metadata about a process besides its number.
_LABELS = ("process_name", "process_labels")
#: Categories with useful arguments, besides ops, kernels and calls.
_KEPT = RESOLVED | {ANNOTATION}


class _Sort(IntEnum):
    """What is done with an event, by its category."""

    OP = 0
    KERNEL = 1
    CALL = 2
    FRAME = 3
    KEPT = 4
    LEFT_OUT = 5


class ReadEvents(NamedTuple):
    """What a file has, by process.

    Attributes:
        of: the events of each process, in the order of the file.
        names: the file's names for these processes.
        ranks: their ranks; None if not recorded.
    """

    of: list[Events]
    names: list[object]
    ranks: list[int] | None


class _Mine(NamedTuple):
    """What is kept for a process, and the process that each of its kernels names."""

    events: Events
    tracks: list[object]


def read_events(trace: JsonTrace, *, linked: bool) -> ReadEvents:
    """The events of a file; all of it is read.

    Args:
        trace: the file.
        linked: whether links between events are requested.

    Raises:
        FlintError: it is cut off or damaged, an event has no time, or it is unknown which of
            several processes used a device.
    """
    arguments: list[dict[str, Any]] = []

    def new() -> _Mine:
        links = LinksBuilder() if linked else None
        return _Mine(Events([], [], {}, [], [], arguments, {}, [], links), [])

    processes = Processes(trace.path, new)
    names: dict[str, str] = {}
    numbers: dict[bytes, int] = {}
    places: dict[str, bool] = {}
    held: list[tuple[Track, Other]] = []
    of_op = Arguments(trace.path, OpArguments)
    of_kernel = Arguments(trace.path, KernelArguments)
    of_call = Arguments(trace.path, CallArguments)
    of_other = Arguments(trace.path, dict[str, Any])
    sorts: dict[str, _Sort] = {}
    process: object = ABSENT
    at = processes.all[0]
    found, tracks = at.mine
    in_place = True
    for event in trace.records("traceEvents", Event, "an event"):
        if event.ph != "X":
            if event.ph == "M" and event.name in _LABELS:
                processes.label(hashable(event.pid), of_other.of(event).values())
            continue
        category = event.cat if type(event.cat) is str else str(event.cat)
        sort = sorts.get(category)
        if sort is None:
            sort = sorts[category] = _sort_of(category.lower())
        start, duration = times_of(event, trace.path)
        if sort is _Sort.LEFT_OUT:
            continue
        name = str(event.name)
        name = names.setdefault(name, name)
        if sort is _Sort.KERNEL:
            kernel = of_kernel.of(event)
            external = kernel.old_external if kernel.external is msgspec.UNSET else kernel.external
            # Some of an MTIA's events name no stream, but stand on a line of their own.
            stream = event.tid if kernel.stream is None else kernel.stream
            found.kernels.append(
                Kernel(
                    start, duration, device_of(kernel.device), str(stream), name,
                    hashable(external), hashable(kernel.correlation), moved_bytes(kernel.bytes),
                )
            )  # fmt: skip
            tracks.append(event.pid)
            in_place &= process is not ABSENT
            continue
        if sort is _Sort.OP:
            if event.pid != process:
                process = event.pid
                at = processes.of(hashable(process), partial(_rank_in, of_other, event))
                found, tracks = at.mine
            if name.startswith(STEP):
                found.steps.append((start, start + duration, name))
                continue
            op = of_op.of(event)
            parts = fields_of(op)
            key = b"\n".join(parts)
            number = numbers.setdefault(key, len(arguments))
            if number == len(arguments):
                arguments.append(decoded(parts, trace.path))
            external = op.old_external if op.external is msgspec.UNSET else op.external
            record = op.record if type(op.record) is int and 0 <= op.record < LATEST else -1
            found.ops.append(
                Op(start, duration, hashable(event.tid), name, hashable(external), record, number)
            )
            continue
        args: dict[str, Any] = {}
        if sort is _Sort.CALL:
            call = of_call.of(event)
            if event.pid == process:
                add_call(found, name, hashable(event.tid), start, duration, call.correlation)
                continue
            args = {"correlation": call.correlation, "rank": call.rank}
        elif sort is _Sort.KEPT:
            args = of_other.of(event)
        elif not linked or not _names_line(name, places):
            continue
        other = Other(category.lower(), name, hashable(event.tid), start, duration, args)
        if event.pid == process:
            add(found, other)
        else:
            held.append((Track(at.number, hashable(event.pid)), other))
    return _by_process(processes, held, in_place=in_place)


def _sort_of(category: str) -> _Sort:
    """What is done with events of a category."""
    for sort, some in _SORTS.items():
        if category in some:
            return sort
    return _Sort.CALL if category.endswith(CALLS) else _Sort.LEFT_OUT


_SORTS: Final = {
    _Sort.OP: _OPS,
    _Sort.KERNEL: DEVICE,
    _Sort.FRAME: frozenset({PYTHON}),
    _Sort.KEPT: _KEPT,
}


def _rank_in(of_other: Arguments[dict[str, Any]], event: Event) -> object:
    """The rank that merging tools add to an event's arguments."""
    return of_other.of(event).get("rank")


def _by_process(
    processes: Processes[_Mine], held: list[tuple[Track, Other]], *, in_place: bool
) -> ReadEvents:
    """Everything with the process that it belongs to; processes without work are left out."""
    if not processes.met:  # no ops at all: the calling processes are those that work
        for track, other in held:
            if other.category.endswith(CALLS):
                processes.of(track.name, partial(other.args.get, "rank"))
        in_place = False
    mine = [process.mine for process in processes.all]
    owners = _move_kernels(processes, mine, held, in_place=in_place) if len(mine) > 1 else {}
    for track, other in held:
        owner = processes.named(track.name)
        number = owners.get(track, track.before) if owner is None else owner.number
        add(mine[number].events, other)
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
    held: list[tuple[Track, Other]],
    *,
    in_place: bool,
) -> dict[Track, int]:
    """Assign device events to the process that launched them; returns the process of each track."""
    kernels: dict[Track, list[Kernel]] = defaultdict(list)
    for number, (events, tracks) in enumerate(mine):
        for kernel, name in zip(events.kernels, tracks, strict=True):
            kernels[Track(number, hashable(name))].append(kernel)
        events.kernels.clear()
    launched = {
        track: [(kernel.correlation, kernel.start) for kernel in some]
        for track, some in kernels.items()
    }
    calls = [{call: begin for call, (_, begin) in events.runtime.items()} for events, _ in mine]
    for track, other in held:
        call = hashable(other.args.get("correlation"))
        owner = processes.named(track.name)
        if other.category in RESOLVED:
            launched.setdefault(track, []).append((call, other.start))
        elif owner is not None and other.category.endswith(CALLS):
            calls[owner.number][call] = other.start
    owners = processes.owners(launched, calls, in_place=in_place)
    for track, some in kernels.items():
        mine[owners[track]].events.kernels.extend(some)
    return owners


def _names_line(name: str, known: dict[str, bool]) -> bool:
    """Whether a Python call names a place; cached, because names repeat."""
    found = known.get(name)
    if found is None:
        found = known[name] = names_line(name)
    return found
