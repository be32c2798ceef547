"""The processes of an export that used a device, and their ranks.

The idea: one report has all processes that were started under the profiler, or one of them; NCCL
shows their ranks when it makes the communicator of all ranks.  Otherwise the file's name does, or
their order.

    processes = processes_of([Path("rank0.sqlite"), Path("rank1.sqlite")])
    processes[0].rank, processes[0].path
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flint.converters.profilers.activities import ranks_of_names
from flint.converters.profilers.database import Database, text
from flint.converters.profilers.nsys.nccl import Made, Payloads, group_name, made
from flint.errors import FlintError

#: Number of bits of a thread's number that are the thread's own.
_OF_THREAD = (1 << 24) - 1
DEVICE_TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)
NOTHING_RAN = "nothing ran on a device in it (nsys profile -t cuda)"
NO_PROCESS = "what ran on a device does not name its process (globalPid), as Nsight Systems does"


@dataclass(frozen=True, slots=True)
class Process:
    """One rank of a run.

    Attributes:
        path: the export.
        process: its number there, as in ``globalPid``.
        device: the only device of the process that belongs to this rank; -1 for all.
        rank: its rank.
        stated: whether NCCL or the file's name shows it.
        world: number of ranks of the run; None if NCCL does not show it.
        members: communicator -> number of its ranks.
        groups: name of a communicator -> its ranks in the run, by their ranks in it, if all are
            known.
    """

    path: Path
    process: int
    device: int
    rank: int
    stated: bool
    world: int | None
    members: dict[int, int]
    groups: dict[str, tuple[int, ...]]


def process_of(thread: int) -> int:
    """The process of a ``globalTid``."""
    return thread & ~_OF_THREAD


def processes_of(paths: Sequence[Path]) -> list[Process]:
    """The ranks of a run's exports, ascending.

    Raises:
        FlintError: a file is not such an export, is damaged, or nothing ran on a device in it.
    """
    places: list[tuple[Path, int, int]] = []
    own: dict[tuple[Path, int, int], list[Made]] = {}
    for path in paths:
        with Database(path) as data:
            if "StringIds" not in data.tables:
                raise FlintError(
                    f"{path}: an SQLite file, but neither an export of Nsight Systems (nsys "
                    "export) nor a database of rocprofv3 or rocmProfileData"
                )
            used = sorted(_used(data))
            if not used:
                ran = any(True for table in DEVICE_TABLES for _ in data.rows(table, ("start",)))
                raise FlintError(f"{path}: {NO_PROCESS if ran else NOTHING_RAN}")
            communicators = _communicators(data)
        for process in used:
            of_process = communicators.get(process, [])
            devices = sorted({item.device for item in of_process if item.device >= 0})
            for device in devices if _several(of_process) else [-1]:
                place = path, process, device
                places.append(place)
                own[place] = [item for item in of_process if device in (-1, item.device)]
    ranks, stated = _ranks(places, own)
    members = {item.communicator: item.members for items in own.values() for item in items}
    at: dict[int, dict[int, int]] = defaultdict(dict)
    for place, items in own.items():
        for item in items:
            at[item.communicator][item.rank] = ranks[place]
    groups = {
        group_name(number): tuple(there[rank] for rank in range(members[number]))
        for number, there in at.items()
        if len(there) == members[number]
    }
    largest = max(members.values(), default=0)
    world = largest if largest > max(ranks.values()) else None
    found = [Process(*place, ranks[place], stated, world, members, groups) for place in places]
    return sorted(found, key=lambda item: item.rank)


def _used(data: Database) -> set[int]:
    """Processes that ran something on a device."""
    return {
        process
        for table in DEVICE_TABLES
        for (process,) in data.numbers(table, ("globalPid",))
        if process is not None
    }


def _several(items: list[Made]) -> bool:
    """Whether one process is several ranks of a communicator."""
    return len({item.communicator for item in items}) < len(set(items))


def _communicators(data: Database) -> dict[int, list[Made]]:
    """The communicators that each process made."""
    payloads = Payloads(data)
    found: dict[int, list[Made]] = defaultdict(list)
    names: dict[int, str] = {}
    for number, value in data.rows("StringIds", ("id", "value")):
        if isinstance(value, bytes) and value.startswith(b"nccl"):
            names[number] = text(value)
    columns = ("globalTid", "text", "textId", "domainId", "binaryData")
    for thread, own, number, domain, binary in data.rows("NVTX_EVENTS", columns):
        if binary is None or not isinstance(thread, int):
            continue
        item = made(text(own) or names.get(number, ""), payloads.of(domain, binary))
        if item is not None:
            found[process_of(thread)].append(item)
    return {process: list(dict.fromkeys(items)) for process, items in found.items()}


def _ranks(
    places: list[tuple[Path, int, int]], own: dict[tuple[Path, int, int], list[Made]]
) -> tuple[dict[tuple[Path, int, int], int], bool]:
    """The rank of each place, and whether it is recorded."""
    largest = max((item.members for items in own.values() for item in items), default=0)
    by_nccl = {
        place: {item.rank for item in items if item.members == largest}
        for place, items in own.items()
    }
    single = {place: next(iter(ranks)) for place, ranks in by_nccl.items() if len(ranks) == 1}
    if len(single) == len(set(single.values())) == len(places):
        return single, True
    named = ranks_of_names([path for path, _, _ in places])
    if named is not None:
        return dict(zip(places, named, strict=True)), True
    return {place: number for number, place in enumerate(places)}, False
