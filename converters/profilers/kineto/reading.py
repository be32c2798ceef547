"""The needed events of a Kineto trace.

The idea: one pass over the file keeps ops, kernels, runtime calls, steps and gloo's own work,
separately by process if several were merged.

    [events] = read_events(JsonTrace.read(Path("rank0.json.gz")), linked=False).of
    events.arguments[events.ops[0].arguments]["Input Dims"]
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from flint.converters.profilers.json_traces import JsonTrace
from flint.converters.profilers.kineto.events import Events, Kernel
from flint.converters.profilers.kineto.halves import gathered
from flint.converters.profilers.kineto.kept import Mine, Other, add, hashable
from flint.converters.profilers.kineto.processes import Processes, Track
from flint.post_execution.host_device_links import CALLS, RESOLVED


class ReadEvents(NamedTuple):
    """What a file has, by process.

    Attributes:
        of: the events of each process, in the order of the file.
        names: the file's names for these processes.
        ranks: their ranks; None if not recorded.
        left_out: why events are left out, or count for less -> how many.
    """

    of: list[Events]
    names: list[object]
    ranks: list[int] | None
    left_out: dict[str, int]


def read_events(trace: JsonTrace, *, linked: bool) -> ReadEvents:
    """The events of a file; all of it is read.

    Args:
        trace: the file.
        linked: whether links between events are requested.

    Raises:
        FlintError: it is damaged, an event has no time, or it is unknown which of several processes
            used a device.
    """
    gathering = gathered(trace, linked=linked)
    left_out = gathering.finish()
    found = _by_process(gathering.processes, gathering.held, in_place=gathering.in_place)
    return ReadEvents(*found, left_out)


def _by_process(
    processes: Processes[Mine], held: list[tuple[Track, Other]], *, in_place: bool
) -> tuple[list[Events], list[object], list[int] | None]:
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
    for events, *_ in mine:
        for calls in events.library.values():
            calls.sort(key=attrgetter("start"))
        events.steps.sort()
        events.gloo.sort(key=lambda entry: (entry[0], entry[1].start))
    working = [
        process
        for process in processes.all
        if process.mine.events.ops or process.mine.events.kernels
    ] or processes.all[:1]
    return (
        [process.mine.events for process in working],
        [process.name for process in working],
        processes.ranks(working),
    )


def _move_kernels(
    processes: Processes[Mine],
    mine: list[Mine],
    held: list[tuple[Track, Other]],
    *,
    in_place: bool,
) -> dict[Track, int]:
    """Assign device events to the process that launched them; returns the process of each track."""
    kernels: dict[Track, list[Kernel]] = defaultdict(list)
    for number, (events, tracks, _, _) in enumerate(mine):
        for kernel, name in zip(events.kernels, tracks, strict=True):
            kernels[Track(number, hashable(name))].append(kernel)
        events.kernels.clear()
    launched = {
        track: [(kernel.correlation, kernel.start) for kernel in some]
        for track, some in kernels.items()
    }
    calls = [{call: begin for call, (_, begin) in events.runtime.items()} for events, *_ in mine]
    for track, other in held:
        call = hashable(other.args.get("correlation"))
        owner = processes.named(track.name)
        if other.category in RESOLVED:
            launched.setdefault(track, []).append((call, other.start))
        elif owner is not None and other.category.endswith(CALLS):
            calls[owner.number][call] = other.start
    owners = processes.owners(launched, calls, in_place=in_place)
    for track, some in kernels.items():
        mine[owners[track]].events.kernels.extend(*zip(*some, strict=True))
    return owners
