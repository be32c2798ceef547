"""Databases of rocmProfileData (.rpd, SQLite), AMD's tracer of long runs: a rank for each process.

The idea: what ran on devices (``rocpd_op``) has a queue and the text of a kernel; what the host
called (``rocpd_api``) has a process and a thread; ``rocpd_api_ops`` joins the two.  Ranges of
ROCTX, PyTorch's among them, are calls named UserMarker with their text as arguments
(rocmProfileData's ``tableSchema.cmd``, schemas 2 and 3).

    processes = processes_of(data)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from flint.converters.profilers.database import Database, text
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

OPS: Final = "rocpd_op"
_RANGE: Final = "UserMarker"
#: Number of the host among the agents; GPUs have their own.
_HOST: Final = -1
#: A copy's ends, by the name of its operation.
_ENDS: Final = {
    "CopyHostToDevice": (False, True),
    "CopyDeviceToHost": (True, False),
    "CopyDeviceToDevice": (True, True),
    "CopyHostToHost": (False, False),
}


def processes_of(data: Database) -> list[Process]:
    """The processes in a database, by their numbers.

    Raises:
        FlintError: it is damaged.
    """
    texts = Texts(data.rows("rocpd_string", ("id", "string")))
    owners: dict[int, int] = {}
    processes: dict[int, Process] = {}
    _add_calls(data, texts, owners, processes)
    _add_ops(data, texts, owners, processes)
    for process in processes.values():
        _declare(process, texts)
    return [processes[pid] for pid in sorted(processes)]


def _process(processes: dict[int, Process], pid: int, texts: Texts) -> Process:
    if pid not in processes:
        processes[pid] = Process(Metadata(pid), Records(), strings=Strings([texts.names]))
    return processes[pid]


def _add_calls(
    data: Database, texts: Texts, owners: dict[int, int], processes: dict[int, Process]
) -> None:
    arguments = Texts(data.rows("rocpd_ustring", ("id", "string")))
    texts_of = arguments if "rocpd_ustring" in data.tables else texts
    shapes = dict(data.rows("ext_autogradapi", ("api_ptr_id", "sizes")))
    columns = ("id", "pid", "tid", "start", "end", "apiName_id", "args_id")
    for number, pid, tid, start, end, name, given in data.numbers("rocpd_api", columns):
        if number is None or pid is None:
            continue
        owners[number] = pid
        process = _process(processes, pid, texts)
        call = Call(0, texts.place(name), tid, Correlation(number), start, end)
        if texts.of(name) != _RANGE:
            process.buffer_records.hip_api.append(call)
            continue
        process.buffer_records.marker_api.append(call)
        shown, sizes = texts_of.of(given), text(shapes.get(number))
        process.strings.marker_api.append(
            Message(number, f"{shown}, sizes = {sizes}" if sizes else shown)
        )


def _add_ops(
    data: Database, texts: Texts, owners: Mapping[int, int], processes: dict[int, Process]
) -> None:
    called = dict(data.numbers("rocpd_api_ops", ("op_id", "api_id")))
    moved = dict(data.rows("rocpd_copyapi", ("api_ptr_id", "size")))
    columns = ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id")
    ops = list(data.numbers(OPS, columns))
    used: dict[int, Counter[int]] = defaultdict(Counter)
    for number, device, *_ in ops:
        call = called.get(number, -1)
        if call in owners:
            used[device][owners[call]] += 1
    only = next(iter(processes), 0)
    users = {device: counts.most_common(1)[0][0] for device, counts in used.items()}
    for number, device, queue, start, end, name, kind in ops:
        call = called.get(number, -1)
        process = _process(processes, owners.get(call, users.get(device, only)), texts)
        records = process.buffer_records
        ends = _ENDS.get(texts.of(kind))
        if ends is not None:
            since, to = (Handle(device if on_device else _HOST) for on_device in ends)
            size = moved.get(call)
            records.memory_copy.append(
                Copy(
                    0, texts.place(kind), Correlation(call), start, end, to, since,
                    size if isinstance(size, int) else -1, Handle(queue),
                )
            )  # fmt: skip
            continue
        where = DispatchInfo(Handle(device), Handle(queue), name if texts.of(name) else kind)
        records.kernel_dispatch.append(
            Dispatch(0, Correlation(call), start, end, where, Handle(queue))
        )


def _declare(process: Process, texts: Texts) -> None:
    """Say what the process's kernels are called, and which devices it used."""
    records = process.buffer_records
    kernels = {record.dispatch_info.kernel_id for record in records.kernel_dispatch}
    process.kernel_symbols = [Symbol(number, texts.of(number)) for number in sorted(kernels)]
    ends = {record.dst_agent_id.handle for record in records.memory_copy}
    ends |= {record.src_agent_id.handle for record in records.memory_copy}
    ends |= {record.dispatch_info.agent_id.handle for record in records.kernel_dispatch}
    process.agents = [Agent(Handle(number), GPU) for number in sorted(ends - {_HOST})]
