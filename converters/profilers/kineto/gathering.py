"""The needed events of a Kineto trace, sorted as they are read.

The idea: a run of events is taken apart by what is done with them, and each part is decoded at
once.  An event's arguments stay text until its category shows which of them are needed; those of
ops (shapes, types, groups) are compared as text and decoded once, because steps repeat.

    gathering = Gathering(path, linked=False)
    gathering.take(events)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, TypeAlias

from flint.converters.profilers.kineto.arguments import (
    ABSENT,
    NO_FIELDS,
    Arguments,
    CallArguments,
    Event,
    KernelArguments,
    OpArguments,
    decoded,
    externals_of,
    fields_of,
    texts_of,
)
from flint.converters.profilers.kineto.begin_end import ALONE, BeginsAndEnds
from flint.converters.profilers.kineto.by_process import CALL_AS_OP, ByProcess
from flint.converters.profilers.kineto.events import LATEST, Events, Table, times_of_all
from flint.converters.profilers.kineto.kept import (
    ANNOTATION,
    GLOO,
    NCCL,
    STEP,
    Call,
    Mine,
    Other,
    add,
    add_calls,
    hashable,
    hashables,
    moved_bytes,
)
from flint.converters.profilers.kineto.processes import Processes, Track
from flint.converters.profilers.kineto.sorts import Sort, is_line, is_unknown, sort_of
from flint.post_execution.host_device_links import LinksBuilder, device_of

#: How names of ops begin that are marks or annotations.
_NO_OPS = (STEP, NCCL, GLOO)
#: What is said of events that ran and have no duration.
UNTIMED = "events without a duration (dur): their time counts as 0"
#: The most characters of a category that are shown.
_SHOWN = 40
#: Metadata about a process besides its number.
_LABELS = ("process_name", "process_labels")
#: An event, its name, and its start and duration in nanoseconds.
_Row: TypeAlias = tuple[Event, str, int, int]


class Gathering:
    """What has been read of a file so far.

    Attributes:
        processes: the processes, with what is kept for each.
        held: events whose process may be known only at the end of the file.
        in_place: whether a process had been named before each kernel.
        process: name of the current process, ``ABSENT`` before the first op.
        at: what is kept for it.
        arguments: arguments of ops that differ.
        numbers: their texts -> their numbers.
        unknown: categories that are not known -> number of their events.
        untimed: events in use that have no duration.
        without: events without a category.
        halves: events that the file has as two.
    """

    def __init__(self, path: Path, *, linked: bool) -> None:
        arguments: list[dict[str, Any]] = []

        def new() -> Mine:
            links = LinksBuilder() if linked else None
            calls, others = Table(Call, len(Call._fields)), Table(Other, len(Other._fields))
            return Mine(Events.empty(arguments, links), [], calls, others)

        self.processes = Processes(path, new)
        self.held: list[tuple[Track, Other]] = []
        self.in_place = True
        self._path, self._linked, self.arguments = path, linked, arguments
        self._names: dict[str, str] = {}
        self._sorts: dict[str, Sort] = {}
        self._places: dict[str, bool] = {}
        self.unknown: dict[str, int] = {}
        self.untimed = 0
        self.numbers: dict[bytes, int] = {}
        self._of_op = Arguments(path, OpArguments)
        self._of_kernel = Arguments(path, KernelArguments)
        self._of_call = Arguments(path, CallArguments)
        self._of_other = Arguments(path, dict[str, Any])
        self.without = ByProcess(path)
        self.halves = BeginsAndEnds(path)
        self.process: object = ABSENT
        self.at = self.processes.all[0]

    @property
    def of_one_process(self) -> bool:
        """Whether all events so far are of one process or name another device."""
        return len(self.processes.all) == 1

    def begin_in(self, process: object) -> None:
        """Begin with events that follow an op of a process, in another part of the file."""
        self.process = process
        self.at = self.processes.of(hashable(process), lambda: None)

    def take(self, events: list[Event]) -> None:
        """Events of any processes, in the order of the file."""
        ran = [event for event in events if event.ph == "X" and event.cat]
        if len(ran) < len(events):
            others = [event for event in events if event.ph != "X" or not event.cat]
            times_of_all([event for event in others if event.ph == "X"], self._path)  # damaged ones
            self.without.take(others)
            self.halves.take(others)
            for event in others:
                if event.ph == "M" and event.name in _LABELS:
                    labels = self._of_other.of(event).values()
                    self.processes.label(hashable(event.pid), labels)
        self._sort(ran)

    def finish(self) -> dict[str, int]:
        """What is known only after all events have been taken.

        Returns:
            Why events are left out, or count for less -> how many.
        """
        self.take(self.halves.whole())
        found = self.without.sorted(self.processes.labels)
        for category in ("cpu_op", "cann_runtime", "hip_runtime", "kernel", "gpu_memcpy"):
            self._sort(found.of.get(category, []))
        mine = self.at.mine.events
        if found.ops:
            names = mine.ops.columns[3]
            mine.ops.order([n for n, name in enumerate(names) if not name.startswith(CALL_AS_OP)])
        for connection, (thread, begin) in found.launches.items():
            [start], _ = times_of_all([Event(ts=begin)], self._path)
            call = Call("HostToDevice Launch", hashable(thread), start, 0, connection)
            self.at.mine.calls.append(call)
        for events, _, calls, others in [process.mine for process in self.processes.all]:
            add_calls(events, *calls.columns)
            for other in others:
                add(events, other)
        for connection, (thread, begin) in found.ops.items():
            [start], _ = times_of_all([Event(ts=begin)], self._path)
            mine.runtime[connection] = hashable(thread), start
        counted = {UNTIMED: self.untimed, ALONE: self.halves.alone}
        found.left_out.update({why: count for why, count in counted.items() if count})
        if self.unknown:
            shown = ", ".join(name[:_SHOWN] for name in list(self.unknown)[:4])
            more = ", ..." if len(self.unknown) > 4 else ""
            why = f"events of categories that are not known ({shown}{more}): left out"
            return {**found.left_out, why: sum(self.unknown.values())}
        return found.left_out

    def _sort(self, ran: list[Event]) -> None:
        """Events with a category, each to where it belongs."""
        categories = texts_of([event.cat for event in ran])
        among = set(categories)
        for category in among - self._sorts.keys():
            self._sorts[category] = sort_of(category.lower())
            if is_unknown(category.lower()):
                self.unknown[category] = 0
        for category in among & self.unknown.keys():
            self.unknown[category] += categories.count(category)
        sorts = [self._sorts[category] for category in categories]
        if any(untimed := [event.dur is None for event in ran]):
            self.untimed += sum(sort is not Sort.LEFT_OUT for sort in compress(sorts, untimed))
        names = texts_of([event.name for event in ran])
        names = list(map(self._names.setdefault, names, names))
        rows = list(zip(ran, names, *times_of_all(ran, self._path), strict=True))
        begin = 0
        if not self._are_mine([e for e, sort in zip(ran, sorts, strict=True) if sort is Sort.OP]):
            for place, (event, sort) in enumerate(zip(ran, sorts, strict=True)):
                if sort is Sort.OP and event.pid != self.process:
                    self._add(rows[begin:place], sorts[begin:place])
                    self.process, begin = event.pid, place
                    stated = partial(_rank_in, self._of_other, event)
                    self.at = self.processes.of(hashable(event.pid), stated)
        self._add(rows[begin:], sorts[begin:])

    def _are_mine(self, events: Sequence[Event]) -> bool:
        """Whether all events are of the current process."""
        return [event.pid for event in events].count(self.process) == len(events)

    def _add(self, rows: list[_Row], sorts: list[Sort]) -> None:
        """Events, the ops among which are of the current process."""
        by_sort: dict[Sort, list[_Row]] = {sort: [] for sort in Sort}
        for row, sort in zip(rows, sorts, strict=True):
            by_sort[sort].append(row)
        self._add_ops(by_sort[Sort.OP])
        self._add_kernels(by_sort[Sort.KERNEL])
        self._add_calls(by_sort[Sort.CALL])
        kept = by_sort[Sort.KEPT]
        for row, args in zip(kept, self._of_other.all([row[0] for row in kept]), strict=True):
            self._add_other(row, args)
        if self._linked:
            for row in by_sort[Sort.FRAME]:
                if is_line(row[1], self._places):
                    self._add_other(row, {})

    def _add_ops(self, rows: list[_Row]) -> None:
        found = self.at.mine.events
        named = [row for row in rows if row[1].startswith(_NO_OPS)]
        if named:
            self._mark(named)
            # Kernels name the annotation that launched them.
            rows = [r for r in rows if not r[1].startswith(_NO_OPS) or r[1].startswith(NCCL)]
        if not rows:
            return
        events, names, starts, took = zip(*rows, strict=True)
        arguments = self._of_op.all(events)
        records = [
            op.record if type(op.record) is int and 0 <= op.record < LATEST else -1
            for op in arguments
        ]
        threads, externals = hashables([event.tid for event in events]), externals_of(arguments)
        numbers = list(map(self._numbered, arguments))
        found.ops.extend(starts, took, threads, names, externals, records, numbers)

    def _mark(self, rows: list[_Row]) -> None:
        """Steps, and annotations of process groups, which PyTorch before 1.12 writes as ops."""
        whole = self._of_other.all([row[0] for row in rows])
        for (event, name, start, took), args in zip(rows, whole, strict=True):
            other = Other(ANNOTATION, name, hashable(event.tid), start, took, args)
            self.at.mine.others.append(other)

    def number(self, key: bytes, arguments: dict[str, Any]) -> int:
        """The number of an op's arguments, by their text."""
        number = self.numbers.setdefault(key, len(self.arguments))
        if number == len(self.arguments):
            self.arguments.append(arguments)
        return number

    def _numbered(self, op: OpArguments) -> int:
        parts = fields_of(op)
        key = b"" if parts == NO_FIELDS else b"\n".join(parts)
        number = self.numbers.get(key)
        return self.number(key, decoded(parts, self._path)) if number is None else number

    def _add_kernels(self, rows: list[_Row]) -> None:
        if not rows:
            return
        found, tracks, _, _ = self.at.mine
        events, names, starts, took = zip(*rows, strict=True)
        arguments = self._of_kernel.all(events)
        found.kernels.extend(
            starts,
            took,
            [device_of(kernel.device) for kernel in arguments],
            # Some of an MTIA's events name no stream, but stand on a line of their own.
            [
                str(event.tid if kernel.stream is None else kernel.stream)
                for event, kernel in zip(events, arguments, strict=True)
            ],
            names,
            externals_of(arguments),
            hashables([kernel.correlation for kernel in arguments]),
            [moved_bytes(kernel.bytes) for kernel in arguments],
        )
        tracks.extend(event.pid for event in events)
        self.in_place &= self.process is not ABSENT

    def _add_calls(self, rows: list[_Row]) -> None:
        if not rows:
            return
        events, names, starts, took = zip(*rows, strict=True)
        arguments = self._of_call.all(events)
        if self._are_mine(events):
            threads = hashables([event.tid for event in events])
            numbers = [call.correlation for call in arguments]
            self.at.mine.calls.extend(names, threads, starts, took, numbers)
            return
        for row, call in zip(rows, arguments, strict=True):
            self._add_other(row, {"correlation": call.correlation, "rank": call.rank})

    def _add_other(self, row: _Row, args: dict[str, Any]) -> None:
        event, name, start, took = row
        category = texts_of([event.cat])[0].lower()
        other = Other(category, name, hashable(event.tid), start, took, args)
        if event.pid == self.process:
            self.at.mine.others.append(other)
        else:
            self.held.append((Track(self.at.number, hashable(event.pid)), other))


def _rank_in(of_other: Arguments[dict[str, Any]], event: Event) -> object:
    """The rank that merging tools add to an event's arguments."""
    return of_other.of(event).get("rank")
