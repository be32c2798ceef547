"""Large Kineto files, read by two processes: each takes half of the events.

The idea: the profile of one process is one long list.  A fork takes its second half as if the first
one had ended with an op of the same process, and returns columns.  Where that was not so, where the
list cannot be divided, and where anything fails there, this process continues with the second half.

    gathered(JsonTrace.read(Path("rank0.json.gz")), linked=True).finish()
"""

from __future__ import annotations

import stat
import sys
from array import array
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from flint.converters.profilers.json_traces import Half, JsonTrace
from flint.converters.profilers.kineto.arguments import ABSENT, Event
from flint.converters.profilers.kineto.events import Table
from flint.converters.profilers.kineto.gathering import Gathering
from flint.converters.profilers.kineto.kept import Other
from flint.converters.profilers.kineto.processes import Track
from flint.errors import FlintError
from flint.host.beside import Beside
from flint.host.side_by_side import spare_processor

_LIST: Final = "traceEvents"
_EXPECTED: Final = "an event"
#: Unpacked files with fewer bytes are read by one process.
_WORTHWHILE: Final = 24 << 20
#: The share of a file that its first half has; both processes unpack that one.
_PLAIN, _PACKED = 0.5, 0.55
_GZIP: Final = b"\x1f\x8b"


class _Column(msgspec.Struct, array_like=True):
    """A column: numbers as bytes, texts as numbers of the distinct ones, or what there is."""

    numbers: bytes = b""
    texts: list[str] | None = None
    values: list[Any] | None = None

    @classmethod
    def of(cls, values: list[Any]) -> _Column:
        """A column of a table."""
        kinds = set(map(type, values))
        if kinds == {int}:
            return cls(array("q", values).tobytes())
        if kinds == {str}:
            places = {text: place for place, text in enumerate(dict.fromkeys(values))}
            return cls(array("q", map(places.__getitem__, values)).tobytes(), list(places))
        return cls(values=values)

    def all(self) -> list[Any]:
        """The values."""
        if self.values is not None:
            return self.values
        numbers = array("q", self.numbers).tolist()
        return numbers if self.texts is None else list(map(self.texts.__getitem__, numbers))


class _Second(msgspec.Struct, array_like=True):
    """The second half of a file: all of it is of one process."""

    tables: list[list[_Column]]
    steps: list[tuple[int, int, str]]
    keys: list[bytes]
    arguments: list[dict[str, Any]]
    unknown: dict[str, int]
    labels: list[tuple[Any, list[str]]]
    held: list[tuple[Any, list[Any]]]
    around: str


def gathered(trace: JsonTrace, *, linked: bool) -> Gathering:
    """All events of a file (raises as ``Gathering`` and ``JsonTrace``)."""
    mine = Gathering(trace.path, linked=linked)
    half = _half_of(trace.path)
    other: Beside | None = None
    try:
        for events in trace.runs(_LIST, Event, _EXPECTED, half):
            if trace.at_half:
                data = other.result() if other is not None and mine.of_one_process else None
                if data is not None:
                    trace.adopt(_LIST, _join(mine, data))
                    break
            mine.take(events)
            if half is not None and other is None and mine.process is not ABSENT:
                other = Beside(partial(_second, trace.path, half, mine.process, linked))
    finally:
        if other is not None:
            other.end()
    return mine


def _half_of(path: Path) -> Half | None:
    """Where to divide a file; None if that is not worthwhile."""
    if sys.platform != "linux" or not spare_processor():
        return None
    try:
        with path.open("rb") as file:
            state = path.stat()
            if not stat.S_ISREG(state.st_mode) or state.st_size < 4:
                return None
            size, share = state.st_size, _PLAIN
            if file.peek(2)[:2] == _GZIP:
                file.seek(-4, 2)  # what its last member unpacks to
                size, share = int.from_bytes(file.read(4), "little"), _PACKED
    except OSError:
        return None  # the reader says why
    return Half(int(size * share)) if size >= _WORTHWHILE else None


def _second(path: Path, half: Half, process: object, linked: bool) -> bytes:
    """The second half of a file, which begins within the events of a process.

    Raises:
        FlintError: it has events of several, some as two or without a category or a duration, or
            ends within its list.
    """
    trace = JsonTrace.read(path)
    found = Gathering(path, linked=linked)
    found.begin_in(process)
    for events in trace.runs(_LIST, Event, _EXPECTED, half._replace(second=True)):
        found.take(events)
    other = found.without or found.halves or found.untimed or trace.cut_off
    if not found.of_one_process or found.process != process or other:
        raise FlintError(f"{path}: its halves are not alike")
    mine = found.processes.all[0].mine
    tables = (mine.events.ops, mine.events.kernels, mine.calls, mine.others)
    columns = [*([*map(_Column.of, table.columns)] for table in tables), [_Column.of(mine.tracks)]]
    return msgspec.msgpack.encode(
        _Second(
            columns,
            mine.events.steps,
            list(found.numbers),
            found.arguments,
            found.unknown,
            list(found.processes.all_labels.items()),
            [(track.name, list(event)) for track, event in found.held],
            trace.around(_LIST),
        )
    )


def _join(mine: Gathering, data: bytes) -> str:
    """Add the second half; returns what is around the list."""
    other = msgspec.msgpack.decode(data, type=_Second)
    numbers = [mine.number(*pair) for pair in zip(other.keys, other.arguments, strict=True)]
    kept = mine.processes.all[0].mine
    ops, *tables, [tracks] = [[column.all() for column in table] for table in other.tables]
    kept.events.ops.extend(*ops[:-1], map(numbers.__getitem__, ops[-1]))
    into: tuple[Table[Any], ...] = (kept.events.kernels, kept.calls, kept.others)
    for table, columns in zip(into, tables, strict=True):
        table.extend(*columns)
    kept.tracks.extend(tracks)
    kept.events.steps.extend(other.steps)
    for category, count in other.unknown.items():
        mine.unknown[category] = mine.unknown.get(category, 0) + count
    for name, labels in other.labels:
        mine.processes.label(name, labels)
    number = mine.processes.all[0].number
    mine.held.extend((Track(number, name), Other(*event)) for name, event in other.held)
    return other.around
