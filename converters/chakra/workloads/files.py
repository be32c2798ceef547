"""The traces to convert, and the groups that a table beside them, or the user, names.

traces_of([Path("et/")], {}).groups["7"]        # (0, 2)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flint.converters.chakra.network import read_json_object
from flint.converters.chakra.read.trace_set import (
    TraceSet,
    load_trace_set,
    rank_of,
    table_of_groups,
)
from flint.converters.chakra.workloads.recorded_groups import recorded_groups
from flint.errors import FlintError, UsageError
from flint.mesh.mesh import MAX_RANKS


@dataclass(frozen=True, eq=False, slots=True)
class Found:
    """What there is to convert.

    Attributes:
        traces: the traces.
        groups: name of a process group -> its ranks, as listed.
        files: the traces' files.
        least: the least number of ranks: those with traces, in groups, and at the ends of messages.
    """

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    files: list[Path]
    least: int


def traces_of(paths: Sequence[Path], stated: Mapping[str, Sequence[int]]) -> Found:
    """The traces that paths stand for.

    Args:
        paths: one folder or prefix, or files.
        stated: groups that the user gives.

    Raises:
        UsageError: no traces, or two of one rank.
        FlintError: a trace or the table is damaged.
    """
    one = len(paths) == 1 and not paths[0].is_file()
    traces = load_trace_set(paths[0] if one else _by_rank(paths))
    for error in traces.unreadable.values():
        raise error
    table = table_of_groups(traces.home, traces.prefix) if traces.home is not None else None
    groups = recorded_groups(traces) | ({} if table is None else _listed(table))
    groups |= {name: tuple(ranks) for name, ranks in stated.items()}
    least = max([traces.size, *(max(ranks) + 1 for ranks in groups.values())])
    for trace in traces.traces:
        for name in ("comm_src", "comm_dst"):
            ends: Any = getattr(trace, name)
            least = max(least, int(ends.max(initial=-1)) + 1)
    if least > MAX_RANKS:
        raise FlintError(f"{traces.prefix}: names rank {least - 1}; the limit is {MAX_RANKS} ranks")
    with_traces = np.sort(np.concatenate([*traces.ranks, np.zeros(0, np.int64)])).tolist()
    files = [traces.path(rank) for rank in with_traces] if one else list(paths)
    return Found(traces, groups, files, least)


def _by_rank(paths: Sequence[Path]) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for path in paths:
        rank = rank_of(path)
        if rank is None and len(paths) > 1:
            raise UsageError(f"{path}: the name tells no rank: name the files NAME.<rank>.et")
        other = found.setdefault(rank or 0, path)
        if other is not path:
            raise UsageError(f"{other} and {path} are both for rank {rank}: give one of them")
    return found


def _listed(table: Path) -> dict[str, tuple[int, ...]]:
    """Groups of a table, ranks as listed.

    Raises:
        FlintError: an entry is no list of ranks.
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, ranks in read_json_object(table):
        whole = isinstance(ranks, list) and bool(ranks)
        if not whole or not all(type(rank) is int and 0 <= rank < MAX_RANKS for rank in ranks):
            raise FlintError(f"{table}: group {name!r} is not a list of ranks")
        if len(set(ranks)) != len(ranks):
            raise FlintError(f"{table}: group {name!r} lists a rank twice")
        found[name] = tuple(ranks)
    return found
