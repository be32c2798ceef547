"""Exports of Nsight Systems -> observed ops: what ran on the devices, inside which NVTX range.

The idea: CUPTI's activities are those that Kineto records: kernels, copies and the calls that
launched them.  NVTX ranges correspond to Kineto's ops: those of PyTorch's ``emit_nvtx`` have
shapes, those of NCCL bytes and communicators, those of users only names.  So an export is read as
the events of a Kineto trace, one trace for each process that is a rank.

    for observed, links in linked([Path("report.sqlite")]):
        observed.ranks
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from flint.converters.profilers.activities import Ranges, Source, finished, span
from flint.converters.profilers.database import Database, text
from flint.converters.profilers.kineto.events import LATEST, Events, Kernel
from flint.converters.profilers.kineto.kept import moved_bytes
from flint.converters.profilers.nsys.nccl import Payloads, called
from flint.converters.profilers.nsys.processes import (
    DEVICE_TABLES,
    NOTHING_RAN,
    Process,
    process_of,
    processes_of,
)
from flint.errors import FlintError
from flint.observed.columns import Hints, Observed
from flint.post_execution.host_device_links import LinksBuilder
from flint.post_execution.links import Links

#: ENUM_CUDA_MEMCPY_OPER.
_COPIES = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
    9: "HtoH", 10: "PtoP", 11: "HtoD (managed)", 12: "DtoH (managed)", 13: "DtoD (managed)",
}  # fmt: skip
#: NVTX ranges of one thread, pushed and popped, and ranges that may end on another.
_PUSHED, _STARTED = 59, 60
#: Sizes are in the payloads of NCCL's ranges, which exports include only on request.
_HINTS = Hints("profile with nsys profile --trace=cuda,nvtx, export with --include-blobs=true")
NO_RANGES = "no NVTX ranges in the export: its kernels are known by their names alone"
NUMBERED = "neither NCCL nor the file names give the ranks: the processes are numbered in order"


def observe(path: Path) -> Observed:
    """Refuse, because a comparison with a capture needs ops, and an export has kernels.

    Raises:
        FlintError: always.
    """
    raise FlintError(
        f"{path}: an export of Nsight Systems records kernels, but a comparison needs PyTorch's "
        "or JAX's own profile; flint convert reads it"
    )


def linked(
    paths: Sequence[Path], stated: Mapping[str, tuple[int, ...]] | None = None
) -> Iterator[tuple[Observed, Links]]:
    """The ranks in exports of one run, ascending, with the links in each.

    Args:
        paths: the exports.
        stated: ranks of communicators that the exports do not record, by their names.

    Raises:
        FlintError: a file is not such an export, or is damaged.
    """
    for process in processes_of(paths):
        with Database(process.path) as data:
            yield _read(data, process, stated or {})


def _read(
    data: Database, process: Process, stated: Mapping[str, tuple[int, ...]]
) -> tuple[Observed, Links]:
    strings = dict(data.rows("StringIds", ("id", "value")))
    events = Events.empty([], LinksBuilder())
    _add_kernels(events, data, process, strings)
    threads = _add_calls(events, data, process, strings)
    _add_ranges(events, data, process, strings, threads)
    base = next(
        (
            moment
            for (moment,) in data.numbers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
            if moment is not None and 0 <= moment < LATEST
        ),
        0,
    )
    source = Source(
        path=process.path,
        form="nsys",
        process=process.process >> 24 & 0xFFFFFF,
        rank=process.rank,
        stated=process.stated,
        world=process.world,
        base=base,
        device=next((text(name) for (name,) in data.rows("TARGET_INFO_GPU", ("name",))), ""),
        hints=_HINTS,
        numbered=NUMBERED,
        no_ranges=NO_RANGES,
        nothing=NOTHING_RAN,
    )
    listed = {name: tuple(sorted(ranks)) for name, ranks in process.groups.items()}
    return finished(events, source, listed | dict(stated))


def _add_kernels(
    events: Events, data: Database, process: Process, strings: Mapping[object, object]
) -> None:
    """What ran on the devices: kernels, copies, fills, CUDA graphs that were recorded whole."""
    columns = (
        "start", "end", "deviceId", "streamId", "correlationId", "globalPid", "shortName",
        "copyKind", "graphId", "demangledName", "bytes",
    )  # fmt: skip
    for table in DEVICE_TABLES:
        for row in data.numbers(table, columns):
            start, end, device, stream, correlation, owner, short, copied, graph, long, moved = row
            times = span(start, end)
            if times is None or owner != process.process or process.device not in (-1, device):
                continue
            if table.endswith("KERNEL"):
                name = text(strings.get(long)) or text(strings.get(short))
            elif table.endswith("MEMCPY"):
                name = f"Memcpy {_COPIES.get(copied, 'unknown')}"
            else:
                name = "Memset" if table.endswith("MEMSET") else f"CUDA graph {graph or ''}"
            events.kernels.append(
                Kernel(
                    *times,
                    -1 if device is None else device,
                    str(stream),
                    name,
                    None,
                    correlation,
                    moved_bytes(moved),
                )
            )


def _add_calls(
    events: Events, data: Database, process: Process, strings: Mapping[object, object]
) -> set[int]:
    """Runtime calls; returns the threads of the rank if others share its process."""
    launched = {kernel.correlation for kernel in events.kernels}
    threads = set()
    columns = ("start", "end", "globalTid", "correlationId", "nameId")
    for start, end, thread, correlation, number in data.numbers(
        "CUPTI_ACTIVITY_KIND_RUNTIME", columns
    ):
        times = span(start, end)
        if times is None or thread is None or process_of(thread) != process.process:
            continue
        if correlation in launched:
            threads.add(thread)
            events.runtime[correlation] = thread, start
        assert events.links is not None
        events.links.call(text(strings.get(number)), thread, *times, correlation)
    return threads if process.device >= 0 else set()


def _add_ranges(
    events: Events,
    data: Database,
    process: Process,
    strings: Mapping[object, object],
    threads: set[int],
) -> None:
    """NVTX ranges as ops, and those named like steps as steps."""
    payloads, ranges = Payloads(data), Ranges(events)
    columns = ("start", "end", "eventType", "globalTid", "text", "textId", "domainId", "binaryData")
    for start, end, kind, thread, own, number, domain, binary in data.rows("NVTX_EVENTS", columns):
        times = span(start, end)
        if times is None or kind not in (_PUSHED, _STARTED) or not isinstance(thread, int):
            continue
        if process_of(thread) != process.process or (threads and thread not in threads):
            continue
        name = text(own) or text(strings.get(number))
        # One that was only started encloses nothing: its thread may do unrelated work meanwhile.
        if ranges.step(name, *times) or kind != _PUSHED:
            continue
        fields = payloads.of(domain, binary)
        ranges.add(name, thread, *times, called(name, fields, process.members, process.groups))
