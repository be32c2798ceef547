"""The JSON that rocprofv3 writes, as far as it is read: one file for each process.

The idea: records name kernels, agents and calls by numbers, and tables beside them have the names
(ROCprofiler-SDK's ``generateJSON.cpp``).  Types are stated and fields that are not listed are
skipped, so that what is decoded stays small.

    process = read(Path("908_results.json"))
    process.buffer_records.kernel_dispatch[0].dispatch_info.kernel_id
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from flint.errors import FlintError
from flint.host.packed_files import pieces
from flint.host.reading_memory import check_room

#: What such a file begins with.
MARK = b'"rocprofiler-sdk-tool"'
#: ``Agent.type`` of a GPU.
GPU = 2
#: The most bytes of an unpacked file.
_MAX_BYTES = 4 << 30
#: The most bytes of memory per character: a name of one letter is an object of 50 bytes in a list.
_PER_CHARACTER = 16


class Handle(msgspec.Struct):
    """The number of an agent, a queue or a stream."""

    handle: int


class Correlation(msgspec.Struct):
    """The number that a call shares with what it has launched."""

    internal: int = -1


class DispatchInfo(msgspec.Struct):
    """Where a kernel ran, and which."""

    agent_id: Handle
    queue_id: Handle
    kernel_id: int


class Dispatch(msgspec.Struct):
    """A kernel that ran; times in nanoseconds.  Streams are recorded since ROCm 6.4."""

    thread_id: int
    correlation_id: Correlation
    start_timestamp: int
    end_timestamp: int
    dispatch_info: DispatchInfo
    stream_id: Handle | None = None


class Copy(msgspec.Struct):
    """A copy that an engine of a device did."""

    kind: int
    operation: int
    correlation_id: Correlation
    start_timestamp: int
    end_timestamp: int
    dst_agent_id: Handle
    src_agent_id: Handle
    bytes: int = -1
    stream_id: Handle | None = None


class Call(msgspec.Struct):
    """A call of HIP or RCCL, or a range."""

    kind: int
    operation: int
    thread_id: int
    correlation_id: Correlation
    start_timestamp: int
    end_timestamp: int


class Symbol(msgspec.Struct):
    """A kernel's names."""

    kernel_id: int
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    kernel_name: str = ""


class Agent(msgspec.Struct):
    """A processor; type 2 is a GPU."""

    id: Handle
    type: int
    name: str = ""
    product_name: str = ""


class Names(msgspec.Struct):
    """The operations of a kind of records."""

    kind: str
    operations: list[str] = []


class Message(msgspec.Struct):
    """A range's text, by the number of its call."""

    key: int
    value: str


class Strings(msgspec.Struct):
    """Names of operations by kind, and texts of ranges."""

    buffer_records: list[Names] = []
    marker_api: list[Message] = []


class Records(msgspec.Struct):
    """What was recorded, if it was asked for."""

    kernel_dispatch: list[Dispatch] = []
    memory_copy: list[Copy] = []
    hip_api: list[Call] = []
    rccl_api: list[Call] = []
    marker_api: list[Call] = []


class Metadata(msgspec.Struct):
    """The process."""

    pid: int


class Process(msgspec.Struct):
    """What one process did."""

    metadata: Metadata
    buffer_records: Records
    agents: list[Agent] = []
    kernel_symbols: list[Symbol] = []
    strings: Strings = msgspec.field(default_factory=Strings)

    def operation(self, record: Call | Copy) -> str:
        """The name of what a record is of; "" if the tables do not have it."""
        kinds = self.strings.buffer_records
        if not 0 <= record.kind < len(kinds):
            return ""
        names = kinds[record.kind].operations
        return names[record.operation] if 0 <= record.operation < len(names) else ""


class _Document(msgspec.Struct):
    processes: Annotated[list[Process], msgspec.Meta(min_length=1, max_length=1)] = msgspec.field(
        name="rocprofiler-sdk-tool"
    )


def read(path: Path) -> Process:
    """The process in a file.

    Raises:
        FlintError: it cannot be read, is too large, damaged or cut off.
    """
    text = b"".join(pieces(path, _MAX_BYTES))
    check_room(_PER_CHARACTER * len(text))
    try:
        return msgspec.json.decode(text, type=_Document).processes[0]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FlintError(f"{path}: rocprofv3's JSON, damaged or cut off ({error})") from error
