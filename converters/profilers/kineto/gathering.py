"""The needed events of a Kineto trace, sorted as they are read.

The idea: a run of events is taken apart by what is done with them, and each part is decoded at
once.  An event's arguments stay text until its category shows which of them are needed; those of
ops (shapes, types, groups) are compared as text and decoded once, because steps repeat.

    gathering = Gathering(path, linked=False)
    gathering.take(events)
    gathering.processes.all[0].mine.events.ops
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

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
from flint.converters.profilers.kineto.by_process import CALL_AS_OP, ByProcess
from flint.converters.profilers.kineto.events import (
    LATEST,
    Events,
    times_of_all,
)
from flint.converters.profilers.kineto.kept import (
    STEP,
    Other,
    add,
    add_call,
    add_calls,
    hashable,
    hashables,
    moved_bytes,
)
from flint.converters.profilers.kineto.processes import Processes, Track
from flint.converters.profilers.kineto.sorts import Sort, is_unknown, sort_of
from flint.post_execution.host_device_links import LinksBuilder, device_of
from flint.post_execution.source_lines import names_line

#: The most characters of a category that are shown.
_SHOWN = 40
#: Metadata about a process besides its number.
_LABELS = ("process_name", "process_labels")


class Mine(NamedTuple):
    """What is kept for a process, and the process that each of its kernels names."""

    events: Events
    tracks: list[object]


#: An event, its name, and its start and duration in nanoseconds.
_Row: TypeAlias = tuple[Event, str, int, int]


class Gathering:
    """What has been read of a file so far.

    Attributes:
        processes: the processes, with what is kept for each.
        held: events whose process may be known only at the end of the file.
        in_place: whether a process had been named before each kernel.
    """

    def __init__(self, path: Path, *, linked: bool) -> None:
        arguments: list[dict[str, Any]] = []

        def new() -> Mine:
            links = LinksBuilder() if linked else None
            return Mine(Events.empty(arguments, links), [])

        self.processes = Processes(path, new)
        self.held: list[tuple[Track, Other]] = []
        self.in_place = True
        self._path, self._linked, self._arguments = path, linked, arguments
        self._names: dict[str, str] = {}
        self._sorts: dict[str, Sort] = {}
        self._places: dict[str, bool] = {}
        self._unknown: dict[str, int] = {}
        self._numbers: dict[bytes, int] = {}
        self._of_op = Arguments(path, OpArguments)
        self._of_kernel = Arguments(path, KernelArguments)
        self._of_call = Arguments(path, CallArguments)
        self._of_other = Arguments(path, dict[str, Any])
        self._without = ByProcess()
        self._process: object = ABSENT
        self._at = self.processes.all[0]

    def take(self, events: list[Event]) -> None:
        """Events of any processes, in the order of the file."""
        ran = [event for event in events if event.ph == "X" and event.cat]
        if len(ran) < len(events):
            others = [event for event in events if event.ph != "X" or not event.cat]
            times_of_all([event for event in others if event.ph == "X"], self._path)  # damaged ones
            self._without.take(others)
            for event in others:
                if event.ph == "M" and event.name in _LABELS:
                    labels = self._of_other.of(event).values()
                    self.processes.label(hashable(event.pid), labels)
        self._sort(ran)

    def finish(self) -> dict[str, int]:
        """Events without a category, after all have been taken.

        Returns:
            Why events are left out -> how many.
        """
        found = self._without.sorted(self.processes.labels)
        for category in ("cpu_op", "cann_runtime", "kernel"):
            self._sort(found.of.get(category, []))
        mine = self._at.mine.events
        if found.ops:
            names = mine.ops.columns[3]
            mine.ops.order([n for n, name in enumerate(names) if not name.startswith(CALL_AS_OP)])
        for connection, (thread, begin) in found.launches.items():
            [start], _ = times_of_all([Event(ts=begin)], self._path)
            add_call(mine, "HostToDevice Launch", hashable(thread), start, 0, connection)
        for connection, (thread, begin) in found.ops.items():
            [start], _ = times_of_all([Event(ts=begin)], self._path)
            mine.runtime[connection] = hashable(thread), start
        if self._unknown:
            shown = ", ".join(name[:_SHOWN] for name in list(self._unknown)[:4])
            more = ", ..." if len(self._unknown) > 4 else ""
            why = f"events of categories that are not known ({shown}{more}): left out"
            return {**found.left_out, why: sum(self._unknown.values())}
        return found.left_out

    def _sort(self, ran: list[Event]) -> None:
        """Events with a category, each to where it belongs."""
        categories = texts_of([event.cat for event in ran])
        among = set(categories)
        for category in among - self._sorts.keys():
            self._sorts[category] = sort_of(category.lower())
            if is_unknown(category.lower()):
                self._unknown[category] = 0
        for category in among & self._unknown.keys():
            self._unknown[category] += categories.count(category)
        sorts = [self._sorts[category] for category in categories]
        names = texts_of([event.name for event in ran])
        names = list(map(self._names.setdefault, names, names))
        rows = list(zip(ran, names, *times_of_all(ran, self._path), strict=True))
        begin = 0
        if not self._are_mine([e for e, sort in zip(ran, sorts, strict=True) if sort is Sort.OP]):
            for place, (event, sort) in enumerate(zip(ran, sorts, strict=True)):
                if sort is Sort.OP and event.pid != self._process:
                    self._add(rows[begin:place], sorts[begin:place])
                    self._process, begin = event.pid, place
                    stated = partial(_rank_in, self._of_other, event)
                    self._at = self.processes.of(hashable(event.pid), stated)
        self._add(rows[begin:], sorts[begin:])

    def _are_mine(self, events: Sequence[Event]) -> bool:
        """Whether all events are of the current process."""
        return [event.pid for event in events].count(self._process) == len(events)

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
                if _names_line(row[1], self._places):
                    self._add_other(row, {})

    def _add_ops(self, rows: list[_Row]) -> None:
        found = self._at.mine.events
        marks = [row for row in rows if row[1].startswith(STEP)]
        if marks:
            found.steps.extend((start, start + took, name) for _, name, start, took in marks)
            rows = [row for row in rows if not row[1].startswith(STEP)]
        if not rows:
            return
        events, names, starts, took = zip(*rows, strict=True)
        arguments = self._of_op.all(events)
        records = [
            op.record if type(op.record) is int and 0 <= op.record < LATEST else -1
            for op in arguments
        ]
        threads = hashables([event.tid for event in events])
        externals, numbers = externals_of(arguments), list(map(self._numbered, arguments))
        found.ops.extend(starts, took, threads, names, externals, records, numbers)

    def _numbered(self, op: OpArguments) -> int:
        """The number of an op's arguments."""
        parts = fields_of(op)
        key = b"" if parts == NO_FIELDS else b"\n".join(parts)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._arguments)
            self._arguments.append(decoded(parts, self._path))
        return number

    def _add_kernels(self, rows: list[_Row]) -> None:
        if not rows:
            return
        found, tracks = self._at.mine
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
        self.in_place &= self._process is not ABSENT

    def _add_calls(self, rows: list[_Row]) -> None:
        if not rows:
            return
        events, names, starts, took = zip(*rows, strict=True)
        arguments = self._of_call.all(events)
        if self._are_mine(events):
            threads = hashables([event.tid for event in events])
            numbers = [call.correlation for call in arguments]
            add_calls(self._at.mine.events, names, threads, starts, took, numbers)
            return
        for row, call in zip(rows, arguments, strict=True):
            self._add_other(row, {"correlation": call.correlation, "rank": call.rank})

    def _add_other(self, row: _Row, args: dict[str, Any]) -> None:
        event, name, start, took = row
        category = texts_of([event.cat])[0].lower()
        other = Other(category, name, hashable(event.tid), start, took, args)
        if event.pid == self._process:
            add(self._at.mine.events, other)
        else:
            self.held.append((Track(self._at.number, hashable(event.pid)), other))


def _rank_in(of_other: Arguments[dict[str, Any]], event: Event) -> object:
    """The rank that merging tools add to an event's arguments."""
    return of_other.of(event).get("rank")


def _names_line(name: str, known: dict[str, bool]) -> bool:
    """Whether a Python call names a place; cached, because names repeat."""
    found = known.get(name)
    if found is None:
        found = known[name] = names_line(name)
    return found
