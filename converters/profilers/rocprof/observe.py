"""Profiles of rocprofv3 and rocmProfileData -> observed ops: what ran on AMD's devices.

The idea: kernels, copies and HIP's calls are those that Kineto records of the same library, and
ranges of ROCTX are the ops around them, as in exports of Nsight Systems.  Calls of RCCL are
recorded by name only, so that collectives have a kind and a time, but no size.

    for observed, links in linked([Path("908_results.json")]):     # or .db, or its CSV files
        observed.ranks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from flint.converters.profilers.activities import Ranges, Source, finished, ranks_of_names, span
from flint.converters.profilers.database import is_database
from flint.converters.profilers.kineto.by_process import COPIES
from flint.converters.profilers.kineto.events import Events, Kernel
from flint.converters.profilers.nsys.nccl import called
from flint.converters.profilers.rocprof import csv_files
from flint.converters.profilers.rocprof.document import GPU, Handle, Process, read
from flint.converters.profilers.rocprof.rocpd import processes_in
from flint.errors import FlintError
from flint.observed.columns import Hints, Observed
from flint.observed.reading import is_csv
from flint.post_execution.host_device_links import LinksBuilder
from flint.post_execution.links import Links
from flint.post_execution.same_process import TWICE

#: Copies by their operations.
_COPIES: Final = {
    "MEMORY_COPY_HOST_TO_HOST": "Memcpy HtoH",
    "MEMORY_COPY_HOST_TO_DEVICE": "Memcpy HtoD",
    "MEMORY_COPY_DEVICE_TO_HOST": "Memcpy DtoH",
    "MEMORY_COPY_DEVICE_TO_DEVICE": "Memcpy DtoD",
} | COPIES
#: Ranges that enclose what their thread does; those that are started and stopped do not.
_NESTED: Final = frozenset({"roctxRangePushA", "roctxThreadRangeA", "UserMarker"})
_HINTS: Final = Hints(beside="PyTorch's own profiler records the sizes of RCCL's collectives")
NO_RANGES: Final = (
    "no ranges in the profile (rocprofv3 --marker-trace): its kernels are known by their names "
    "alone"
)
NUMBERED: Final = "the file names do not give the ranks: the processes are numbered in order"
IDLE: Final = "processes in which nothing ran on a device, left out: {}"
NOTHING_RAN: Final = "nothing ran on a device in it (rocprofv3 --kernel-trace)"
#: What CSV does not tell, by the records that it leaves incomplete.
UNTOLD: Final = {
    "memory_copy": "rocprofv3's CSV does not tell the bytes of copies: its databases and JSON do",
    "marker_api": (
        "rocprofv3's CSV does not tell which ranges enclose what their thread does: those with a "
        "thread are taken to; its databases and JSON tell"
    ),
}


def observe(path: Path) -> Observed:
    """Refuse, because a comparison with a capture needs ops, and such a profile has kernels.

    Raises:
        FlintError: always.
    """
    raise FlintError(
        f"{path}: AMD's tracers record kernels, but a comparison needs PyTorch's or JAX's own "
        "profile; flint convert reads it"
    )


def linked(
    paths: Sequence[Path], stated: Mapping[str, tuple[int, ...]] | None = None
) -> Iterator[tuple[Observed, Links]]:
    """The ranks in profiles of one run, ascending, with the links in each.

    Args:
        paths: the profiles; one has a process, or several if it was merged.
        stated: ranks of communicators, by their names.

    Raises:
        FlintError: a file is damaged, or nothing ran on a device in it.
    """
    found = _processes(paths)
    used = [(path, process) for path, process in found if _is_used(process)] or found
    idle = len(found) - len(used)
    # rocprofv3 writes a process in as many forms as it is asked for.
    distinct = {
        _when(process) or number: (path, process)
        for number, (path, process) in reversed([*enumerate(used)])
    }
    left_out = [IDLE.format(idle)] if idle else []
    left_out += [TWICE.format(len(used) - len(distinct))] if len(distinct) < len(used) else []
    used = [*reversed(distinct.values())]
    numbers = ranks_of_names([path for path, _ in used])
    for rank, (path, process) in sorted(
        zip(numbers or range(len(used)), used, strict=True), key=lambda item: item[0]
    ):
        source = Source(
            path=path,
            form="rocprof",
            process=process.metadata.pid,
            rank=rank,
            stated=numbers is not None,
            world=None,
            base=0,
            device=_device(process),
            hints=_HINTS,
            numbered=NUMBERED,
            no_ranges=NO_RANGES,
            nothing=NOTHING_RAN,
            notes=(*_untold(path, process), *left_out),
        )
        yield finished(_events(process), source, stated or {})


def _processes(paths: Sequence[Path]) -> list[tuple[Path, Process]]:
    """The processes in files, each with the first one that it is in."""
    tables = [path for path in paths if is_csv(path)]
    together = {files[0]: files for files in csv_files.grouped(tables)}
    found: list[tuple[Path, Process]] = []
    for path in paths:
        if path in together:
            found += [(path, process) for process in csv_files.processes_in(together[path])]
        elif path not in tables:
            processes = processes_in(path) if is_database(path) else [read(path)]
            found += [(path, process) for process in processes]
    return found


def _untold(path: Path, process: Process) -> list[str]:
    """What the files of a process do not tell of what it did."""
    records = process.buffer_records
    told = {"memory_copy": records.memory_copy, "marker_api": records.marker_api}
    return [note for name, note in UNTOLD.items() if told[name] and is_csv(path)]


def _is_used(process: Process) -> bool:
    """Whether anything ran on a device; a launcher's process has nothing."""
    return bool(process.buffer_records.kernel_dispatch or process.buffer_records.memory_copy)


def _when(process: Process) -> tuple[tuple[int, int], ...]:
    """When each kernel, or without any each copy, began and ended: no two processes have it the
    same, to the nanosecond.
    """
    ran = process.buffer_records.kernel_dispatch or process.buffer_records.memory_copy
    return tuple(sorted((record.start_timestamp, record.end_timestamp) for record in ran))


def _device(process: Process) -> str:
    """The name of the device that kernels ran on, or of the first one."""
    ran = process.buffer_records.kernel_dispatch
    used = {record.dispatch_info.agent_id.handle for record in ran}
    gpus = [agent for agent in process.agents if agent.type == GPU]
    chosen = [agent for agent in gpus if agent.id.handle in used] or gpus
    return next((agent.product_name or agent.name for agent in chosen), "")


def _events(process: Process) -> Events:
    events = Events.empty([], LinksBuilder())
    _add_kernels(events, process)
    _add_copies(events, process)
    _add_calls(events, process)
    _add_ranges(events, process)
    return events


def _devices(process: Process) -> dict[int, int]:
    """Numbers of the GPUs, as HIP counts them, by their handles."""
    gpus = [agent.id.handle for agent in process.agents if agent.type == GPU]
    return {handle: number for number, handle in enumerate(gpus)}


def _add_kernels(events: Events, process: Process) -> None:
    devices = _devices(process)
    names = {
        symbol.kernel_id: symbol.formatted_kernel_name
        or symbol.demangled_kernel_name
        or symbol.kernel_name
        for symbol in process.kernel_symbols
    }
    for record in process.buffer_records.kernel_dispatch:
        times, info = span(record.start_timestamp, record.end_timestamp), record.dispatch_info
        if times is None:
            continue
        stream = _stream(record.stream_id, f"queue {info.queue_id.handle}")
        name = names.get(info.kernel_id, f"kernel {info.kernel_id}")
        device = devices.get(info.agent_id.handle, -1)
        number = record.correlation_id.internal
        events.kernels.append(Kernel(*times, device, stream, name, None, number))


def _add_copies(events: Events, process: Process) -> None:
    devices = _devices(process)
    for record in process.buffer_records.memory_copy:
        times = span(record.start_timestamp, record.end_timestamp)
        ends = devices.get(record.dst_agent_id.handle), devices.get(record.src_agent_id.handle)
        device = next((number for number in ends if number is not None), -1)
        if times is None or device < 0:  # the others are within the host
            continue
        stream = _stream(record.stream_id, "copies")
        name = _COPIES.get(process.operation(record), "Memcpy unknown")
        number = record.correlation_id.internal
        events.kernels.append(Kernel(*times, device, stream, name, None, number, record.bytes))


def _stream(stream: Handle | None, otherwise: str) -> str:
    return otherwise if stream is None else str(stream.handle)


def _add_calls(events: Events, process: Process) -> None:
    launched = {kernel.correlation for kernel in events.kernels}
    for record in process.buffer_records.hip_api:
        times, number = span(record.start_timestamp, record.end_timestamp), record.correlation_id
        if times is None:
            continue
        if number.internal in launched:
            events.runtime[number.internal] = record.thread_id, times[0]
        assert events.links is not None
        events.links.call(process.operation(record), record.thread_id, *times, number.internal)


def _add_ranges(events: Events, process: Process) -> None:
    ranges, records = Ranges(events), process.buffer_records
    texts = {message.key: message.value for message in process.strings.marker_api}
    for record in records.marker_api:
        times = span(record.start_timestamp, record.end_timestamp)
        name = texts.get(record.correlation_id.internal, "")
        if times is None or not name:
            continue
        if not ranges.step(name, *times) and process.operation(record) in _NESTED:
            ranges.add(name, record.thread_id, *times)
    for record in records.rccl_api:
        times = span(record.start_timestamp, record.end_timestamp)
        name = process.operation(record)
        collective = called(name, {}, {}, {})
        if times is not None and collective is not None:
            ranges.add(name, record.thread_id, *times, collective)
