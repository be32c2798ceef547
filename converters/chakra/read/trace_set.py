"""All ranks' traces of one run together with the groups and the network that they refer to.

The idea: a set of N ranks has as many traces as distinct files.  Code that depends on ranks works
on classes of ranks with the same trace, so that 16,384 identical ranks cost as much as one.

    out/et/trace.0.et ... trace.511.et        PREFIX.<rank>.et, prefix out/et/trace
    out/astra-sim/comm_groups.json            {"1": [0, 8, 16, ...], ...}
    out/astra-sim/network.yml                 npus_count: [8, 64]
    out/workload.json                         {"partial": false, ...}

    traces = load_trace_set(Path("out"))
    traces.traces[traces.class_of_rank()[17]]
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.network import (
    GroupTable,
    Network,
    read_group_table,
    read_json_object,
    read_npus_count,
    too_large,
)
from flint.converters.chakra.read.reader import TraceReader
from flint.converters.chakra.read.trace import Trace
from flint.errors import FlintError, UsageError
from flint.mesh.mesh import MAX_RANKS
from flint.workload.folder import lists_groups

_FILE = re.compile(r"(?P<prefix>.+)\.(?P<rank>0|[1-9][0-9]{0,8})\.et")


@dataclass(frozen=True, slots=True)
class TraceSet:
    """The traces of ranks 0..size-1, as far as they exist.

    Attributes:
        prefix: path before `.<rank>.et`.
        size: number of ranks of the world.
        network: extents of the network's dims; None if unknown.
        groups: the comm-groups file (empty if there is none).
        system: the ASTRA-sim system file's content (empty if there is none).
        traces: the distinct traces.
        ranks: for each of `traces` the int64 ranks, ascending, that have it.
        unreadable: rank -> why its file could not be read.
        partial: the folder says that it has only some ranks.
        home: the folder that configuration files are relative to; None in memory.
        memory: the remote memory file's content (empty if there is none).
    """

    prefix: Path
    size: int
    network: Network | None
    groups: GroupTable
    system: dict[str, Any]
    traces: tuple[Trace, ...]
    ranks: tuple[NDArray[np.int64], ...]
    unreadable: dict[int, FlintError]
    partial: bool
    home: Path | None = None
    memory: dict[str, Any] = field(default_factory=dict)

    def path(self, rank: int) -> Path:
        """The file of `rank`."""
        return self.prefix.with_name(f"{self.prefix.name}.{rank}.et")

    def class_of_rank(self) -> NDArray[np.int64]:
        """int64 [size]: index into `traces` for every rank, -1 where it is missing."""
        classes = np.full(self.size, -1, np.int64)
        for index, ranks in enumerate(self.ranks):
            classes[ranks] = index
        return classes


def load_trace_set(
    folder_or_prefix: Path | dict[int, Path],
    *,
    comm_groups: Path | None = None,
    npus_count: tuple[int, ...] | None = None,
    reader: TraceReader | None = None,
) -> TraceSet:
    """Find and read the traces of a workload folder, of a plain folder of ETs, or of a prefix.

    Args:
        folder_or_prefix: a workload folder (with `et/`), a folder with `*.<rank>.et`, or PREFIX;
            or the file of each rank.
        comm_groups: the group table; default: what the folder has, see `table_of_groups`.
        npus_count: extents of the network's dims, dim 0 (consecutive ranks) first; default: as in
            `astra-sim/network.yml`.
        reader: shares what it has read before.

    Raises:
        UsageError: there are no traces, or traces of several prefixes.
        FlintError: a configuration file is corrupt.  Unreadable traces do not raise: they are in
            `TraceSet.unreadable`.
    """
    prefix, files, home = (
        _find(folder_or_prefix) if isinstance(folder_or_prefix, Path) else _given(folder_or_prefix)
    )
    network = _network(home, npus_count)
    partial = _is_partial(home)
    size = max(files) + 1
    if network is not None:
        size = max(size, network.ranks)
    if size > MAX_RANKS:
        raise FlintError(f"{prefix}: a world of {size} ranks; the limit is {MAX_RANKS}")
    network = _fitting(network, size)
    table = comm_groups or table_of_groups(home, prefix)
    bound = MAX_RANKS if partial and network is None else size
    groups = GroupTable({}) if table is None else read_group_table(table, bound)
    system, memory = (_settings(home, name) for name in ("system.json", "remote_memory.json"))
    traces, ranks, unreadable = _read(files, reader or TraceReader())
    return TraceSet(
        prefix, size, network, groups, system, traces, ranks, unreadable, partial, home, memory
    )  # fmt: skip


def _find(where: Path) -> tuple[Path, dict[int, Path], Path]:
    """The prefix, rank -> file, and the folder that the configuration files are relative to."""
    if where.is_dir():
        inner = where / "et"
        folder = inner if inner.is_dir() else where
        wanted = None
    else:
        folder, wanted = where.parent, where.name
    home = _home(folder)
    found: dict[str, dict[int, Path]] = {}
    try:
        for file in folder.iterdir():
            match = _FILE.fullmatch(file.name)
            if match and wanted in (None, match["prefix"]):
                found.setdefault(match["prefix"], {})[int(match["rank"])] = file
    except OSError as error:
        raise UsageError(f"{folder}: cannot be listed: {error.strerror or error}") from error
    if not found:
        raise UsageError(
            f"{where}: no execution traces here; expected a folder with et/trace.<rank>.et or a "
            "prefix PREFIX of files PREFIX.<rank>.et"
        )
    if len(found) > 1:
        names = ", ".join(sorted(found))
        raise UsageError(f"{where}: traces of several prefixes ({names}); name one of them")
    ((name, files),) = found.items()
    return folder / name, files, home


def _given(files: dict[int, Path]) -> tuple[Path, dict[int, Path], Path]:
    """As `_find`, for files that the caller has found."""
    first = files[min(files)]
    named = _FILE.fullmatch(first.name)
    return first.with_name(named["prefix"] if named else first.stem), files, _home(first.parent)


def rank_of(path: Path) -> int | None:
    """The rank that a file's name has; None if it has none."""
    named = _FILE.fullmatch(path.name.removesuffix(".gz"))
    return int(named["rank"]) if named else None


def _home(folder: Path) -> Path:
    """The folder that configuration files are relative to, of the traces' folder."""
    return folder.parent if folder.name == "et" else folder


def table_of_groups(home: Path, prefix: Path) -> Path | None:
    """The table of groups beside traces: Flint's or that of other tools; None if there is none."""
    names = "astra-sim/comm_groups.json", "comm_groups.json", "comm_group.json"
    found = _first_file(home, *names) or _first_file(prefix.parent, *names[1:])
    if found is not None:
        return found
    # The symbolic tensor graph generator names it after the traces.
    beside = prefix.with_name(f"{prefix.name}.json")
    return beside if beside.is_file() and lists_groups(beside) else None


def _first_file(home: Path, *names: str) -> Path | None:
    return next((home / name for name in names if (home / name).is_file()), None)


def _settings(home: Path, name: str) -> dict[str, Any]:
    """What a file of ASTRA-sim's settings has; {} if there is none."""
    file = _first_file(home, f"astra-sim/{name}", name)
    return {} if file is None else dict(read_json_object(file))


def _network(home: Path, npus_count: tuple[int, ...] | None) -> Network | None:
    if npus_count is not None:
        if not npus_count or min(npus_count) < 1:
            raise UsageError(f"npus_count {list(npus_count)}: extents must be positive integers")
        if problem := too_large(npus_count):
            raise UsageError(problem)
        return Network(tuple(npus_count))
    file = _first_file(home, "astra-sim/network.yml", "network.yml")
    return None if file is None else Network(read_npus_count(file))


def _fitting(network: Network | None, size: int) -> Network | None:
    if network is not None and network.ranks < size:
        raise UsageError(
            f"npus_count {list(network.npus_count)} has {network.ranks} ranks, but there is a "
            f"trace of rank {size - 1}"
        )
    return network


def _is_partial(home: Path) -> bool:
    file = _first_file(home, "workload.json")
    return file is not None and dict(read_json_object(file)).get("partial") is True


def _read(
    files: dict[int, Path], reader: TraceReader
) -> tuple[tuple[Trace, ...], tuple[NDArray[np.int64], ...], dict[int, FlintError]]:
    classes: dict[int, tuple[Trace, list[int]]] = {}
    unreadable: dict[int, FlintError] = {}
    for rank in sorted(files):
        try:
            trace = reader.read(files[rank])
        except FlintError as error:
            unreadable[rank] = error
        else:
            classes.setdefault(id(trace), (trace, []))[1].append(rank)
    return (
        tuple(trace for trace, _ in classes.values()),
        tuple(np.array(ranks, np.int64) for _, ranks in classes.values()),
        unreadable,
    )
