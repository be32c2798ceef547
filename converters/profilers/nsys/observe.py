"""Exports of Nsight Systems -> observed ops: what ran on the devices, inside which NVTX range.

The idea: CUPTI's activities are those that Kineto records: kernels, copies and the calls that
launched them.  NVTX ranges correspond to Kineto's ops: those of PyTorch's ``emit_nvtx`` have
shapes, those of NCCL bytes and communicators, those of users only names.  So an export is read as
the events of a Kineto trace, one trace for each process that is a rank.

    for observed, links in linked([Path("report.sqlite")]):
        observed.ranks
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from flint.converters.profilers.kineto.events import LATEST, Events, Kernel, Op
from flint.converters.profilers.kineto.facts import RECORD, Groups
from flint.converters.profilers.kineto.kept import moved_bytes
from flint.converters.profilers.kineto.marks import mark
from flint.converters.profilers.kineto.rows import add_ops, stand_in
from flint.converters.profilers.nsys.database import Database, text
from flint.converters.profilers.nsys.nccl import Payloads, called
from flint.converters.profilers.nsys.processes import (
    DEVICE_TABLES,
    NOTHING_RAN,
    Process,
    process_of,
    processes_of,
)
from flint.converters.profilers.nsys.ranges import described
from flint.errors import FlintError
from flint.observed.columns import UNKNOWN_RANK, Hints, Observed
from flint.observed.rows import ObservedRows
from flint.post_execution.host_device_links import LinksBuilder
from flint.post_execution.links import Links

#: ENUM_CUDA_MEMCPY_OPER.
_COPIES = {
    1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD",
    9: "HtoH", 10: "PtoP", 11: "HtoD (managed)", 12: "DtoH (managed)", 13: "DtoD (managed)",
}  # fmt: skip
#: NVTX ranges of one thread, pushed and popped, and ranges that may end on another.
_PUSHED, _STARTED = 59, 60
#: Names of steps in programs, PyTorch Lightning and DeepSpeed.
_STEP = re.compile(
    r"(ProfilerStep#|(train(ing)?[ _:.-]*)?(step|iter(ation)?|batch)[ _:#=.-]*)\d{1,12}",
    re.IGNORECASE,
)
#: The most characters of a device's name.
_LONGEST_NAME = 80
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
    links = LinksBuilder()
    events = Events.empty([], links)
    _add_kernels(events, data, process, strings)
    threads = _add_calls(events, data, process, strings)
    _add_ranges(events, data, process, strings, threads)
    rows = ObservedRows(f"{process.path} (process {process.process >> 24 & 0xFFFFFF})")
    if not process.stated:
        rows.note(NUMBERED if process.rank else UNKNOWN_RANK)
    if not events.ops:
        if not events.kernels:
            raise FlintError(f"{process.path}: {NOTHING_RAN}")
        stand_in(events)
        rows.note(NO_RANGES)
    events.steps.sort()
    mark(events, rows, "no range in the export is named like a step")
    listed = {name: tuple(sorted(ranks)) for name, ranks in process.groups.items()}
    groups = listed | dict(stated)
    steps = tuple(step[2] for step in events.steps) or ("whole trace",)
    add_ops(rows, events, Groups(groups, False), process.rank, range(len(steps)))
    base = next(
        (
            moment
            for (moment,) in data.numbers("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
            if moment is not None and 0 <= moment < LATEST
        ),
        0,
    )
    observed = rows.finish(
        form="nsys",
        backend="gpu",
        world=process.world,
        steps=steps,
        base=base,
    )
    name = next((text(name) for (name,) in data.rows("TARGET_INFO_GPU", ("name",))), "")
    observed = replace(observed, device=name[:_LONGEST_NAME], hints=_HINTS)
    return observed, links.finish(groups, events.steps, base)


def _span(start: object, end: object) -> tuple[int, int] | None:
    """Start and duration of a row; None if it has none."""
    if not isinstance(start, int) or not isinstance(end, int) or not 0 <= start < LATEST:
        return None
    return start, min(max(0, end - start), LATEST)


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
            span = _span(start, end)
            if span is None or owner != process.process or process.device not in (-1, device):
                continue
            if table.endswith("KERNEL"):
                name = text(strings.get(long)) or text(strings.get(short))
            elif table.endswith("MEMCPY"):
                name = f"Memcpy {_COPIES.get(copied, 'unknown')}"
            else:
                name = "Memset" if table.endswith("MEMSET") else f"CUDA graph {graph or ''}"
            events.kernels.append(
                Kernel(
                    *span,
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
        span = _span(start, end)
        if span is None or thread is None or process_of(thread) != process.process:
            continue
        if correlation in launched:
            threads.add(thread)
            events.runtime[correlation] = thread, start
        assert events.links is not None
        events.links.call(text(strings.get(number)), thread, *span, correlation)
    return threads if process.device >= 0 else set()


def _add_ranges(
    events: Events,
    data: Database,
    process: Process,
    strings: Mapping[object, object],
    threads: set[int],
) -> None:
    """NVTX ranges as ops, and those named like steps as steps."""
    payloads = Payloads(data)
    numbers: dict[str, int] = {}
    columns = ("start", "end", "eventType", "globalTid", "text", "textId", "domainId", "binaryData")
    for start, end, kind, thread, own, number, domain, binary in data.rows("NVTX_EVENTS", columns):
        span = _span(start, end)
        if span is None or kind not in (_PUSHED, _STARTED) or not isinstance(thread, int):
            continue
        if process_of(thread) != process.process or (threads and thread not in threads):
            continue
        name = text(own) or text(strings.get(number))
        if _STEP.fullmatch(name):
            events.steps.append((span[0], span[0] + span[1], name))
            continue
        if kind != _PUSHED:  # it encloses nothing: its thread may do unrelated work in the meantime
            continue
        arguments = called(name, payloads.of(domain, binary), process.members, process.groups)
        if arguments is not None:
            name = RECORD
        else:
            name, arguments, frame = described(name)
            if frame:
                assert events.links is not None
                events.links.frame(frame, thread, *span)
            if not name:
                continue
        key = f"{name} {arguments}"
        place = numbers.setdefault(key, len(events.arguments))
        if place == len(events.arguments):
            events.arguments.append(arguments)
        events.ops.append(Op(*span, thread, name, None, -1, place))
