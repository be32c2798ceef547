"""The CSV of rocprofv3, and of rocprof before it: a file for each kind of records of a process.

The idea: its rows are the records of the JSON with their names in place of numbers, so a reader
numbers the names again.  The files of a process share the beginning of their names
(ROCprofiler-SDK's ``generateCSV.cpp``; ``rocpd convert`` adds a column that tells processes apart).
Agents are told as ``--agent-index`` says, and before ROCm 6.4 by their node's number.

    grouped([Path("908_kernel_trace.csv"), Path("908_agent_info.csv")])     # both: one process
    [process] = processes_in([Path("908_kernel_trace.csv"), Path("908_agent_info.csv")])
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

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
    Names,
    Process,
    Records,
    Strings,
    Symbol,
)
from flint.errors import FlintError
from flint.host.packed_files import pieces
from flint.host.reading_memory import check_room

#: The most bytes of an unpacked file, and of memory per character.
_MAX_BYTES, _PER_CHARACTER = 4 << 30, 8
_LARGEST: Final = 1 << 63
#: How the names of one process's files end.
_ENDING: Final = re.compile(
    r"(^|_)(kernel|memory_copy|(hip|rccl|marker|hsa)(_api)?)_trace\.csv$|(^|_)agent_info\.csv$"
)
#: The columns of rocprof's ``results.csv`` as rocprofv3 calls them.
_EARLIER: Final = {
    "KernelName": "Kernel_Name",
    "gpu-id": "Agent_Id",
    "queue-id": "Queue_Id",
    "tid": "Thread_Id",
    "pid": "Owner",
    "BeginNs": "Start_Timestamp",
    "EndNs": "End_Timestamp",
    "Guid": "Owner",
}
#: The ends of a copy that are on devices, by its direction.
_ON_DEVICES: Final = {
    "HOST_TO_DEVICE": (False, True),
    "DEVICE_TO_HOST": (True, False),
    "DEVICE_TO_DEVICE": (True, True),
}
_TIMES: Final = ("Start_Timestamp", "End_Timestamp")

_Row = Mapping[str, str]


def grouped(paths: Iterable[Path]) -> list[list[Path]]:
    """The files of each process, in the order of the first ones."""
    found: dict[Path, list[Path]] = {}
    for path in paths:
        found.setdefault(path.with_name(_ENDING.sub("", path.name) or "_"), []).append(path)
    return [*found.values()]


def processes_in(paths: Sequence[Path]) -> list[Process]:
    """The processes in files whose names begin alike: one, unless the rows tell several apart.

    Raises:
        FlintError: one cannot be read, is too large, damaged or cut off.
    """
    found: dict[str, _Recorded] = {}
    # Agents first: they are called by several names.
    for path in sorted(paths, key=lambda path: not path.name.endswith("agent_info.csv")):
        for row, add in _rows(path):
            owner = row.get("Owner", "")
            try:
                add(found.setdefault(owner, _Recorded()), row)
            except ValueError as error:
                raise FlintError(f"{path}: rocprof's CSV, damaged or cut off ({error})") from error
    return [recorded.finished() for recorded in found.values() or [_Recorded()]]


class _Recorded:
    """A process's records, as they are read."""

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._records = Records()
        self._messages: list[Message] = []
        self._process = -1
        self._agents: dict[str, Agent] = {}
        #: What the file of agents calls each of them.
        self._labels: dict[str, str] = {}

    def kernel(self, row: _Row) -> None:
        name = self._text(row["Kernel_Name"].removesuffix(" [clone .kd]"))
        agent = self._agent(row["Agent_Id"], is_gpu=True)
        where = DispatchInfo(agent, Handle(_number(row["Queue_Id"])), name)
        thread = _number(row.get("Thread_Id", "0"))
        self._records.kernel_dispatch.append(
            Dispatch(thread, _call(row), *_times(row), where, _stream(row))
        )

    def copy(self, row: _Row) -> None:
        direction = row["Direction"]
        since_gpu, to_gpu = _ON_DEVICES.get(direction.removeprefix("MEMORY_COPY_"), (False, False))
        since = self._agent(row["Source_Agent_Id"], is_gpu=since_gpu)
        to = self._agent(row["Destination_Agent_Id"], is_gpu=to_gpu)
        own = Copy(0, self._text(direction), _call(row), *_times(row), to, since)
        own.stream_id = _stream(row)
        self._records.memory_copy.append(own)

    def call(self, row: _Row) -> None:
        kinds = {
            "HIP": self._records.hip_api,
            "RCCL": self._records.rccl_api,
            "MARKER_CORE": self._records.marker_api,
        }
        kind = next((kind for kind in kinds if row["Domain"].startswith(kind)), None)
        name, thread, times = row["Function"], _number(row["Thread_Id"]), _times(row)
        self._process = _number(row["Process_Id"])
        if kind is None or (kind == "MARKER_CORE" and name.startswith("roctx")):
            return  # a call of another library, or of ROCTX without a text
        number = _call(row)
        if kind == "MARKER_CORE":
            # The text is in the place of the operation, which is told by nothing but this: marks
            # take no time, and ranges that another thread may end are of no thread.
            number = Correlation(len(self._messages))
            self._messages.append(Message(number.internal, name))
            name = "roctxRangePushA" if thread and times[0] < times[1] else "roctxRangeStartA"
        kinds[kind].append(Call(0, self._text(name), thread, number, *times))

    def agent(self, row: _Row) -> None:
        kind = row["Agent_Type"]
        own = f"Agent {row['Logical_Node_Id']}"
        before = sum(agent.type == (GPU if kind == "GPU" else 1) for agent in self._agents.values())
        self._labels |= {row["Node_Id"]: own, f"{kind} {before}": own}
        handle = self._agent(own, is_gpu=kind == "GPU")
        product = row.get("Product_Name", "")
        self._agents[own] = Agent(handle, GPU if kind == "GPU" else 1, row["Name"], product)

    def finished(self) -> Process:
        """All of it.  Streams of which only the default one is told, which is also "unknown", are
        none, as in databases.
        """
        for records in (self._records.kernel_dispatch, self._records.memory_copy):
            if not any(record.stream_id and record.stream_id.handle for record in records):
                for record in records:
                    record.stream_id = None
        return Process(
            metadata=Metadata(self._process),
            buffer_records=self._records,
            agents=[self._agents[label] for label in sorted(self._agents, key=_natural)],
            kernel_symbols=[Symbol(number, text) for text, number in self._texts.items()],
            strings=Strings([Names("", list(self._texts))], self._messages),
        )

    def _text(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def _agent(self, label: str, *, is_gpu: bool) -> Handle:
        label = self._labels.get(label, label)
        if label not in self._agents:
            self._agents[label] = Agent(Handle(len(self._agents)), GPU if is_gpu else 1)
        return self._agents[label].id


#: What each kind of files has: how its first line begins, the columns that it must have, and what
#: adds a row.
_Add = Callable[[_Recorded, _Row], None]
_KERNEL: Final = ("Kernel_Name", "Agent_Id", "Queue_Id", *_TIMES)
_TABLES: Final[dict[tuple[str, ...], tuple[tuple[str, ...], _Add]]] = {
    ("Node_Id", "Logical_Node_Id"): (("Agent_Type", "Name"), _Recorded.agent),
    ("Kind", "Agent_Id"): (_KERNEL, _Recorded.kernel),
    ("Index", "Kernel_Name"): (_KERNEL, _Recorded.kernel),
    ("Kind", "Direction"): (
        ("Source_Agent_Id", "Destination_Agent_Id", *_TIMES),
        _Recorded.copy,
    ),
    ("Domain", "Function"): (("Process_Id", "Thread_Id", *_TIMES), _Recorded.call),
}


def _rows(path: Path) -> Iterator[tuple[_Row, _Add]]:
    """The rows of a file, with what adds them."""
    data = b"".join(pieces(path, _MAX_BYTES))
    check_room(_PER_CHARACTER * len(data))
    reader = csv.reader(io.StringIO(data.decode(errors="replace"), newline=""), strict=True)
    try:
        names = [_EARLIER.get(name, name) for name in next(reader, [])]
        kind = tuple(name for name in names if name != "Owner")[:2]
        if kind not in _TABLES:
            raise FlintError(f"{path}: CSV, but not of rocprof's kernels, copies, calls or agents")
        needed, add = _TABLES[kind]
        missing = [name for name in needed if name not in names]
        if missing:
            raise FlintError(f"{path}: rocprof's CSV without {', '.join(missing)}")
        for row in reader:
            if len(row) != len(names):
                raise FlintError(
                    f"{path}: rocprof's CSV, damaged or cut off (line {reader.line_num:,} has "
                    f"{len(row)} columns, the first one {len(names)})"
                )
            yield dict(zip(names, row, strict=True)), add
    except csv.Error as error:
        raise FlintError(f"{path}: rocprof's CSV, damaged or cut off ({error})") from error


def _number(text: str) -> int:
    """A number as it is written.

    Raises:
        ValueError: it is none, or has more than 64 bits.
    """
    if len(text) > len(str(_LARGEST)) or not 0 <= (number := int(text)) < _LARGEST:
        raise ValueError(f"a number of {len(text)} digits")
    return number


def _times(row: _Row) -> tuple[int, int]:
    return _number(row["Start_Timestamp"]), _number(row["End_Timestamp"])


def _call(row: _Row) -> Correlation:
    return Correlation(_number(row["Correlation_Id"])) if "Correlation_Id" in row else Correlation()


def _stream(row: _Row) -> Handle | None:
    return Handle(_number(row["Stream_Id"])) if "Stream_Id" in row else None


def _natural(label: str) -> tuple[int, str]:
    """Agent 2 before Agent 10."""
    digits = re.sub(r"\D", "", label)[:9]
    return int(digits or 0), label
