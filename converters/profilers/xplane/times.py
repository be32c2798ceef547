"""Profiles of JAX -> when each instruction of the executed program ran on each device.

The idea: an event is an execution of an instruction.  An asynchronous one has two, its start and
the wait at its end: it lasts from the begin of the one to the end of the other, and takes the
device as long as both.

    times = times_of(Path("profile/"), None)
    times.runs[0].names[3], times.runs[0].start[3]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flint.converters.profilers.xplane.devices import hosts_of
from flint.converters.profilers.xplane.events import Event
from flint.converters.profilers.xplane.profile import profile_of
from flint.converters.profilers.xplane.program import Program
from flint.errors import FlintError, UsageError
from flint.post_execution.module_times import DeviceRun, ModuleTimes

_ENCLOSING = ("while", "conditional", "call")
IN_ORDER = (
    "hosts whose ranks the profile does not name: taken in the order of their files' names (for "
    "GPUs, name the files 0.xplane.pb, 1.xplane.pb, ... by jax.process_index())"
)


def times_of(path: Path, step: str | None) -> ModuleTimes:
    """The program in a profile folder or file, and its instructions' times.

    Args:
        path: the folder or file.
        step: number of the run within the trace; the last one by default.

    Raises:
        UsageError: no such run.
        FlintError: as ``profile_of``.
    """
    notes: dict[str, int] = {}

    def first_devices(files: Sequence[Path], backends: set[str], world: int | None) -> list[int]:
        try:
            return hosts_of(files, backends, world)
        except FlintError:
            if world is None or world % len(files):
                raise
            notes[IN_ORDER] = len(files)
            return [number * (world // len(files)) for number in range(len(files))]

    profile = profile_of(path, first_devices=first_devices)
    runs: dict[int, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in profile.events:
        runs[event.device][event.run].append(event)
    count = min(len(found) for found in runs.values())
    wanted = count - 1
    if step is not None:
        if not step.removeprefix("run ").isdecimal() or int(step.removeprefix("run ")) >= count:
            raise UsageError(f"--step {step}: {path} has the runs 0 to {count - 1}")
        wanted = int(step.removeprefix("run "))
    starts = _starts(profile.program)
    return ModuleTimes(
        path=str(path),
        proto=profile.proto,
        runs=tuple(
            _run(rank, profile.file_of[rank], _in_time(found)[wanted], starts)
            for rank, found in sorted(runs.items())
        ),
        enclosing=frozenset(
            item.name for item in profile.program.by_name.values() if item.opcode in _ENCLOSING
        ),
        device=profile.device or ("CPU" if profile.backend == "cpu" else ""),
        run=wanted,
        notes=profile.rows.notes | notes,
    )


def _in_time(runs: dict[int, list[Event]]) -> list[list[Event]]:
    """The events of each run, by the run's begin."""
    return sorted(runs.values(), key=lambda events: events[0].start)


def _run(rank: int, clock: int, events: list[Event], starts: dict[str, str]) -> DeviceRun:
    """What a device executed in a run; ``starts`` as of ``_starts``."""
    names: list[str] = []
    rows: list[list[int]] = []
    begun: dict[str, list[int]] = {}
    for event in events:
        row = [event.start, event.end, event.duration, event.launch, event.stream]
        open_ = begun.pop(starts.get(event.hlo, ""), None)
        if open_ is not None:
            open_[1] = max(open_[1], event.end)
            open_[2] += event.duration
            continue
        names.append(starts.get(event.hlo, event.hlo))
        begun[names[-1]] = row
        rows.append(row)
    return DeviceRun(rank, clock, names, *np.array(rows, np.int64).reshape(-1, 5).T)


def _starts(program: Program) -> dict[str, str]:
    """The end of each asynchronous op -> its start."""
    return {
        item.name: program.by_id[item.operand_ids[0]].name
        for item in program.by_name.values()
        if item.opcode.endswith("-done") and item.operand_ids
    }
