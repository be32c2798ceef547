"""The events that are kept from a Kineto trace: ops, kernels, calls, steps, with their times.

The idea: one process's events as rows of numbers and names, from any file; exports of other
profilers are converted to the same form.

    events = Events.empty([], None)
    events.ops.append(Op(0, 10, 1, "aten::mm", 7, -1, 0))
    events.ops.columns                     # ([0], [10], [1], ["aten::mm"], [7], [-1], [0])
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np

from flint.errors import FlintError
from flint.mesh.ragged import Ints
from flint.post_execution.host_device_links import LinksBuilder

#: Categories of device events, from libkineto's ActivityType.cpp and older versions.
DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "mtia_ccp_events"})
#: The largest valid time in nanoseconds: 2^62, so that sums stay within 64 bits.
LATEST = 1 << 62
#: Microseconds as text, to the nanosecond.
_DECIMAL = re.compile(r"(\d{1,18})\.(\d{1,3})")

Row = TypeVar("Row", bound=tuple[Any, ...])


class Op(NamedTuple):
    """An op on the host: nanoseconds, thread, the profiler's numbers for it."""

    start: int
    duration: int
    thread: object
    name: str
    external: object
    record: int  # number of the record function, -1 without
    arguments: int  # index into ``Events.arguments``


class Kernel(NamedTuple):
    """A kernel or a copy on a device: nanoseconds, stream, and the reference to its op.

    Each device has its own streams, with the same numbers on all devices.
    """

    start: int
    duration: int
    device: int  # -1 where the trace does not say
    stream: object
    name: str
    external: object
    correlation: object
    bytes: int = -1  # that a copy or fill moves


class Table(Generic[Row]):
    """Rows of one kind, stored as columns: files have a million of them.

    Attributes:
        columns: a list for each field of a row.
    """

    __slots__ = ("_row", "columns")

    def __init__(self, row: Callable[..., Row], width: int) -> None:
        self._row = row
        self.columns: tuple[list[Any], ...] = tuple([] for _ in range(width))

    def append(self, row: Row) -> None:
        """Add a row."""
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)

    def extend(self, *columns: Iterable[Any]) -> None:
        """Add many rows by their columns."""
        for column, more in zip(self.columns, columns, strict=True):
            column.extend(more)

    def order(self, places: Sequence[int]) -> None:
        """Keep the rows at some places, in that order."""
        if len(places) > 1:
            chosen = itemgetter(*places)
            self.columns = tuple(list(chosen(column)) for column in self.columns)
        else:
            self.columns = tuple([column[at] for at in places] for column in self.columns)

    def clear(self) -> None:
        """Remove all rows."""
        for column in self.columns:
            column.clear()

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, place: int) -> Row:
        return self._row(*(column[place] for column in self.columns))

    def __iter__(self) -> Iterator[Row]:
        return map(self._row, *self.columns)


def times_of_rows(rows: Table[Op] | Table[Kernel]) -> tuple[Ints, Ints]:
    """Starts and durations, nanoseconds; shape [rows]."""
    return np.array(rows.columns[0], np.int64), np.array(rows.columns[1], np.int64)


class LibraryCall(NamedTuple):
    """A process group's annotation of a collective: NCCL's while it issues it, gloo's while it
    runs.

    The name is without the library's.
    """

    start: int
    end: int
    name: str
    dims: Any
    types: Any


class GloosWork(NamedTuple):
    """Gloo's own work: when, on what, and whether it can be no other op's."""

    start: int
    end: int
    dtype: str
    elements: int
    thread: object
    call: LibraryCall
    sure: bool = True


class Events(NamedTuple):
    """What is kept.

    Attributes:
        ops, kernels: in the order of the file.
        runtime: correlation -> thread and nanosecond of the call that launches.
        steps: begin, end and name, in order.
        gloo: number of the record and the work, in order.
        arguments: arguments of ops.
        library: thread -> calls of a library that communicates, in order.
        updates: begin, end and name of optimizers' steps, in order.
        links: links between them, if requested.
    """

    ops: Table[Op]
    kernels: Table[Kernel]
    runtime: dict[object, tuple[object, int]]
    steps: list[tuple[int, int, str]]
    gloo: list[tuple[int, GloosWork]]
    arguments: list[dict[str, Any]]
    library: dict[object, list[LibraryCall]]
    updates: list[tuple[int, int, str]]
    links: LinksBuilder | None

    @classmethod
    def empty(cls, arguments: list[dict[str, Any]], links: LinksBuilder | None) -> Events:
        """Nothing yet; ``arguments`` may be shared with other processes."""
        ops, kernels = Table(Op, len(Op._fields)), Table(Kernel, len(Kernel._fields))
        return cls(ops, kernels, {}, [], [], arguments, {}, [], links)


def times_of(event: Any, path: Path) -> tuple[int, int]:
    """Start and duration in nanoseconds of an event with ``ts``, ``dur`` and ``cat``.

    Host events that were never closed have a negative duration, which counts as 0, as none does.

    Raises:
        FlintError: it has no times, or impossible ones.
    """
    begin, took = event.ts, 0 if event.dur is None else event.dur
    try:
        if type(begin) is float and type(took) is float:
            start, duration = round(begin * 1000), round(took * 1000)
        else:
            start, duration = _nanoseconds(begin), _nanoseconds(took)
    except (TypeError, ValueError, OverflowError) as error:
        raise FlintError(f"{path}: an event without times: {_shown(event)}") from error
    if 0 <= start < LATEST and 0 <= duration < LATEST:
        return start, duration
    if str(event.cat) in DEVICE or not 0 <= start < LATEST or duration > 0:
        raise FlintError(f"{path}: an event with an invalid time: {_shown(event)}")
    return start, 0


def times_of_all(events: Sequence[Any], path: Path) -> tuple[list[int], list[int]]:
    """Starts and durations of many events, as by ``times_of``."""
    if not events:
        return [], []
    start = _all_nanoseconds([event.ts for event in events])
    duration = _all_nanoseconds([event.dur for event in events])
    if start is not None and duration is not None and min(start.min(), duration.min()) >= 0:
        return start.tolist(), duration.tolist()
    times = [times_of(event, path) for event in events]
    return [start for start, _ in times], [duration for _, duration in times]


def _all_nanoseconds(microseconds: list[Any]) -> Ints | None:
    """Numbers as nanoseconds; None if some need a look each."""
    try:
        column = np.array(microseconds)
    except (ValueError, OverflowError):  # lists in a damaged file
        return None
    if column.ndim != 1 or column.dtype.kind not in "if":
        return None
    # Up to 2^53, whole numbers among fractions are exact.
    most = LATEST if column.dtype.kind == "i" or int not in map(type, microseconds) else 1 << 53
    if not (np.abs(column) < most // 1000).all():
        return None
    if column.dtype.kind == "i":
        return column.astype(np.int64) * 1000
    nanoseconds: Ints = np.rint(column * 1000).astype(np.int64)
    return nanoseconds


def _nanoseconds(microseconds: Any) -> int:
    """Nanoseconds of a clock since 1970 are beyond a float's 53 bits: whole numbers stay exact, and
    so does text.
    """
    if type(microseconds) is int:
        return microseconds * 1000
    if isinstance(microseconds, str) and (found := _DECIMAL.fullmatch(microseconds)):
        return int(found[1]) * 1000 + int(found[2].ljust(3, "0"))
    return round(float(microseconds) * 1000)


def _shown(event: Any) -> str:
    return msgspec.json.encode(event).decode(errors="replace")[:80]
