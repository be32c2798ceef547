"""Databases of rocprofv3 (rocpd, SQLite), its default: a process for each set of tables.

The idea: its tables have what the JSON has, each with the process's identifier at the end of its
name, so that merged files have several.  A record's event has its category and the number that a
call shares with what it has launched (``stack_id``); names are numbers of strings
(ROCprofiler-SDK's ``rocpd_tables.sql`` and ``generateRocpd.cpp``, schema 3).  No view is run.

    [process] = processes_in(Path("908_results.db"))
    process.buffer_records.kernel_dispatch[0].dispatch_info.kernel_id
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from flint.converters.profilers.database import Database, text
from flint.converters.profilers.rocprof import rpd
from flint.converters.profilers.rocprof.document import (
    GPU,
    Agent,
    Call,
    Copy,
    Correlation,
    Dispatch,
    DispatchInfo,
    Handle,
    Message,
    Metadata,
    Process,
    Records,
    Strings,
    Symbol,
)
from flint.converters.profilers.rocprof.texts import Texts
from flint.errors import FlintError
from flint.host.reading_memory import check_room

_DISPATCHES: Final = "rocpd_kernel_dispatch"
#: The most bytes of memory per byte of a file: a row of 20 bytes is objects of 300.
_PER_BYTE: Final = 16


class _Extra(msgspec.Struct):
    """What an event has beside its columns: the text of a range."""

    message: str = ""


class _Event(NamedTuple):
    """What a record belongs to: its kind, in capitals, and the number of its call."""

    category: str
    call: int


def processes_in(path: Path) -> list[Process]:
    """The processes in a file, in the order of their identifiers, which begin with their time.

    Raises:
        FlintError: it is not such a database, or is damaged.
    """
    check_room(_PER_BYTE * path.stat().st_size)
    with Database(path) as data:
        if rpd.OPS in data.tables:
            return rpd.processes_of(data)
        found = sorted(
            name.removeprefix(_DISPATCHES) for name in data.tables if name.startswith(_DISPATCHES)
        )
        if not found:
            raise FlintError(
                f"{path}: SQLite, but neither with the tables of rocprofv3 ({_DISPATCHES}...) nor "
                f"with those of rocmProfileData ({rpd.OPS})"
            )
        return [_Tables(data, own).process() for own in found]


class _Tables:
    """The tables of a process, as a process of the JSON."""

    def __init__(self, data: Database, own: str) -> None:
        self._data, self._own = data, own
        self._texts = Texts(self._rows("string", "id", "string"))
        self._messages: list[Message] = []
        self._events = dict(self._read_events())

    def process(self) -> Process:
        """The process."""
        calls: dict[str, list[Call]] = {"HIP": [], "RCCL": [], "MARKER": []}
        for tid, start, end, name, number in self._numbers(
            "region", "tid", "start", "end", "name_id", "event_id"
        ):
            event = self._events.get(number)
            kind = event and next((one for one in calls if one in event.category), None)
            if event and kind:
                place, own = self._texts.place(name), Correlation(event.call)
                calls[kind].append(Call(0, place, tid, own, start, end))
        records = Records(
            kernel_dispatch=list(self._dispatches()),
            memory_copy=list(self._copies()),
            hip_api=calls["HIP"],
            rccl_api=calls["RCCL"],
            marker_api=calls["MARKER"],
        )
        pid = next((pid for (pid,) in self._numbers("info_process", "pid") if pid is not None), -1)
        return Process(
            metadata=Metadata(pid),
            buffer_records=records,
            agents=list(self._agents()),
            kernel_symbols=list(self._symbols()),
            strings=Strings([self._texts.names], self._messages),
        )

    def _rows(self, table: str, *columns: str) -> Iterator[tuple[object, ...]]:
        return self._data.rows(f"rocpd_{table}{self._own}", columns)

    def _numbers(self, table: str, *columns: str) -> Iterator[tuple[int, ...]]:
        return self._data.numbers(f"rocpd_{table}{self._own}", columns)

    def _read_events(self) -> Iterator[tuple[int, _Event]]:
        for number, category, call, extra in self._rows(
            "event", "id", "category_id", "stack_id", "extdata"
        ):
            if not isinstance(number, int) or not isinstance(call, int):
                continue
            message = _message(extra)
            if message:
                self._messages.append(Message(call, message))
            yield number, _Event(self._texts.of(category).upper(), call)

    def _call(self, event: int) -> Correlation:
        found = self._events.get(event)
        return Correlation(found.call if found else -1)

    def _dispatches(self) -> Iterator[Dispatch]:
        columns = (
            "tid",
            "start",
            "end",
            "agent_id",
            "kernel_id",
            "queue_id",
            "stream_id",
            "event_id",
        )
        stream_of = self._streams(_DISPATCHES.removeprefix("rocpd_"))
        for tid, start, end, agent, kernel, queue, stream, event in self._numbers(
            "kernel_dispatch", *columns
        ):
            where = DispatchInfo(Handle(agent), Handle(queue), kernel)
            yield Dispatch(tid, self._call(event), start, end, where, stream_of(stream))

    def _copies(self) -> Iterator[Copy]:
        columns = (
            "start",
            "end",
            "name_id",
            "dst_agent_id",
            "src_agent_id",
            "size",
            "stream_id",
            "event_id",
        )
        stream_of = self._streams("memory_copy")
        for start, end, name, to, since, size, stream, event in self._numbers(
            "memory_copy", *columns
        ):
            place, own = self._texts.place(name), self._call(event)
            moved = -1 if size is None else size
            yield Copy(
                0, place, own, start, end, Handle(to), Handle(since), moved, stream_of(stream)
            )

    def _streams(self, table: str) -> Callable[[int], Handle | None]:
        """Streams as handles; none where only the default one is told, which is also "unknown"."""
        told = any(stream for (stream,) in self._numbers(table, "stream_id"))
        return Handle if told else lambda _: None

    def _agents(self) -> Iterator[Agent]:
        for number, kind, name, product in self._rows(
            "info_agent", "id", "type", "name", "product_name"
        ):
            if isinstance(number, int):
                is_gpu = text(kind) == "GPU"
                yield Agent(Handle(number), GPU if is_gpu else 1, text(name), text(product))

    def _symbols(self) -> Iterator[Symbol]:
        for number, shown, name in self._rows(
            "info_kernel_symbol", "id", "display_name", "kernel_name"
        ):
            if isinstance(number, int):
                yield Symbol(number, text(shown), kernel_name=text(name))


def _message(extra: object) -> str:
    """The text of a range in what an event has beside its columns; "" without."""
    if not isinstance(extra, bytes) or b"message" not in extra:
        return ""
    try:
        return msgspec.json.decode(extra, type=_Extra).message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
