"""Kineto traces of PyTorch's profiler -> observed ops: what ran, inside what, on which stream.

The idea: an op is a CPU event; ``rows`` finds what it launched and what it is part of; this module
reads facts about the whole file: rank, world, groups, device, steps.

    observe(Path("rank0.json.gz")).steps        # ("ProfilerStep#3", "ProfilerStep#4")
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from flint.converters.profilers.json_traces import JsonTrace
from flint.converters.profilers.kineto.events import LATEST, Events
from flint.converters.profilers.kineto.facts import Groups
from flint.converters.profilers.kineto.foreign import why_empty
from flint.converters.profilers.kineto.marks import mark
from flint.converters.profilers.kineto.processes import MERGED, UNKNOWN_ORDER
from flint.converters.profilers.kineto.reading import read_events
from flint.converters.profilers.kineto.rows import add_ops, stand_in
from flint.converters.profilers.torch_collectives import groups_of
from flint.errors import FlintError
from flint.observed.columns import CUT_OFF, UNKNOWN_RANK, Hints, Observed
from flint.observed.rows import ObservedRows
from flint.post_execution.links import Links

_NO_MARKS = "no ProfilerStep in the trace"
_NOT_RECORDED = (
    "launches of work that the profiler did not record on the device: only the host's time is known"
)
#: The most characters of the name of a device or a machine.
_LONGEST_NAME = 80
_HINTS = Hints(
    "profile with record_shapes=True",
    "; the execution trace of the same run may record it (--et)",
)
_RANK = re.compile(r"rank[-_.]?(\d{1,7})", re.IGNORECASE)


def observe(path: Path) -> Observed:
    """The ops of a Kineto JSON file, gzip allowed, for all ranks that were merged into it.

    Raises:
        FlintError: it is not such a file, is cut off or damaged, or has no ops.
    """
    file = _read(path, linked=False)
    rows = ObservedRows(str(path))
    steps: dict[str, int] = {}
    for events in file.events:
        mark(events, rows, _NO_MARKS)
    for rank, events in zip(file.ranks(rows), file.events, strict=True):
        numbers = [steps.setdefault(name, len(steps)) for name in _steps(events)]
        _add(rows, file, rank, events, {}, numbers)
    on_device = any(events.kernels for events in file.events)
    return file.finished(rows, tuple(steps), on_device)


def linked(
    path: Path, stated: Mapping[str, tuple[int, ...]] | None = None
) -> Iterator[tuple[Observed, Links]]:
    """The ops of each rank, and which calls, kernels and waits belong to which (see ``observe``).

    Args:
        path: the file.
        stated: ranks of process groups that it names but does not list.
    """
    file = _read(path, linked=True)
    for place, (events, name) in enumerate(zip(file.events, file.names, strict=True)):
        several = f" (process {str(name)[:_LONGEST_NAME]})" if len(file.events) > 1 else ""
        rows = ObservedRows(f"{path}{several}")
        rank = file.ranks(rows)[place]
        mark(events, rows, _NO_MARKS)
        steps = _steps(events)
        groups = _add(rows, file, rank, events, stated or {}, range(len(steps)))
        assert events.links is not None
        if not events.kernels:
            rows.note(_NOT_RECORDED, events.links.launches)
        links = events.links.finish(groups, events.steps, file.base)
        yield file.finished(rows, steps, bool(events.kernels)), links


class _File(NamedTuple):
    """A trace that was read.

    Attributes:
        path: its path.
        events: events of each process in it.
        names: names of these processes in it.
        stated_ranks: their ranks; None if not recorded.
        info: PyTorch's information about the job, from one of them.
        left_out: why events are left out -> how many.
        cut_off: whether it ends within its events.
        base: the zero of its times, in nanoseconds.
        device: the driver's name for the first device; "" if not recorded.
        host: the name of the machine; "" if not recorded.
    """

    path: Path
    events: list[Events]
    names: list[object]
    stated_ranks: list[int] | None
    info: Mapping[str, Any]
    left_out: Mapping[str, int]
    cut_off: bool
    base: int
    device: str
    host: str

    def ranks(self, rows: ObservedRows) -> list[int]:
        """The ranks of the processes; ``rows`` gets a note on how they are known."""
        if len(self.events) == 1:
            return [_rank(self.path, self.info, rows)]
        rows.note(MERGED)
        if self.stated_ranks is None:
            rows.note(UNKNOWN_ORDER)
        return self.stated_ranks or list(range(len(self.events)))

    def finished(self, rows: ObservedRows, steps: tuple[str, ...], on_device: bool) -> Observed:
        """The columns of ``rows``."""
        if self.cut_off:
            rows.note(CUT_OFF)
        for why, count in self.left_out.items():
            rows.note(why, count)
        world = self.info.get("world_size")
        observed = rows.finish(
            form="kineto",
            backend="gpu" if on_device else "cpu",
            world=world if type(world) is int and world > 0 else None,
            steps=steps,
            base=self.base,
        )
        return replace(observed, device=self.device, host=self.host, hints=_HINTS)


def _read(path: Path, *, linked: bool) -> _File:
    trace = JsonTrace.read(path)
    read = read_events(trace, linked=linked)
    rest = trace.rest("traceEvents")
    if not any(events.ops or events.kernels or events.gloo for events in read.of):
        why = why_empty(path, rest, read.left_out)
        raise FlintError(f"{path}: neither CPU ops nor kernels in it: {why}")
    if not linked and not all(events.ops or events.gloo for events in read.of):
        raise FlintError(
            f"{path} contains no CPU ops to name what ran: profile with ProfilerActivity.CPU"
        )
    info = rest.get("distributedInfo")
    base, host = rest.get("baseTimeNanoseconds"), rest.get("host_name")
    return _File(
        path=path,
        events=read.of,
        names=read.names,
        stated_ranks=read.ranks,
        info=info if isinstance(info, dict) else {},
        left_out=read.left_out,
        cut_off=bool(trace.cut_off),
        base=base if type(base) is int and 0 <= base < LATEST else 0,
        device=_device(rest.get("deviceProperties")),
        host=host[:_LONGEST_NAME] if isinstance(host, str) else "",
    )


def _steps(events: Events) -> tuple[str, ...]:
    return tuple(step[2] for step in events.steps) or ("whole trace",)


def _add(
    rows: ObservedRows,
    file: _File,
    rank: int,
    events: Events,
    stated: Mapping[str, tuple[int, ...]],
    steps: Sequence[int],
) -> dict[str, tuple[int, ...]]:
    """Rows of one process.

    Args:
        rows: the rows are added here.
        file: its file.
        rank: its rank.
        events: its events.
        stated: ranks of process groups that the file names but does not list.
        steps: numbers of its steps in ``rows``.

    Returns:
        The process groups that the file lists, by name; if it has several ranks, those with this
        one: the list comes from one of them, and others may have other groups with these names.
    """
    groups = groups_of(file.info.get("pg_config"))
    if len(file.events) > 1:
        groups = {name: ranks for name, ranks in groups.items() if rank in ranks}
    if not events.ops and events.kernels:
        stand_in(events)
        rows.note("no CPU ops in the trace: its kernels are known by their names alone")
    add_ops(rows, events, Groups(groups | dict(stated), events.links is None), rank, steps)
    return groups


def _device(properties: object) -> str:
    """The driver's name for the first device; "" if not recorded."""
    first = properties[0] if isinstance(properties, list) and properties else None
    name = first.get("name") if isinstance(first, dict) else None
    return name[:_LONGEST_NAME] if isinstance(name, str) else ""


def _rank(path: Path, info: Mapping[str, Any], rows: ObservedRows) -> int:
    rank = info.get("rank")
    if type(rank) is int and 0 <= rank < 1 << 32:
        return rank
    named = _RANK.search(path.name)
    if named:
        return int(named[1])
    rows.note(UNKNOWN_RANK)
    return 0
