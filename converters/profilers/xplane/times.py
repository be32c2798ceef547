"""Profiles of JAX -> when each instruction of the executed program ran on each device.

The idea: an event is an execution of an instruction.  An asynchronous one has two, its start and
the wait at its end: it lasts from the begin of the one to the end of the other, and takes the
device as long as both.

    [times] = times_of(Path("profile/"), None)
    times.runs[0].names[3], times.runs[0].start[3]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from flint.converters.profilers.xplane.devices import hosts_of
from flint.converters.profilers.xplane.events import Event
from flint.converters.profilers.xplane.groups import other_groups, regrouped
from flint.converters.profilers.xplane.profile import Profile, Read, profile_of, read_profile
from flint.converters.profilers.xplane.program import Program
from flint.converters.profilers.xplane.sequence import (
    Step,
    longest_program,
    runs_in_time,
    steps_of,
)
from flint.errors import FlintError, UsageError
from flint.hlo.joined import joined, named
from flint.hlo.messages import parse_module
from flint.post_execution.module_times import DeviceRun, ModuleTimes

_ENCLOSING = ("while", "conditional", "call")
AS_WELL = "as well"
ELSEWHERE = "on other devices, whose ranks are missing"
GROUPS = (
    "groups of devices that run programs of their own: what one hands to another is not recorded, "
    "so each program begins when it began, a wait for another group counts as the host's, and "
    "without the measured host no group waits for another"
)
IN_ORDER = (
    "hosts whose ranks the profile does not name: taken in the order of their files' names (for "
    "GPUs, name the files 0.xplane.pb, 1.xplane.pb, ... by jax.process_index())"
)


def times_of(path: Path, step: str | None) -> tuple[ModuleTimes, ...]:
    """The program in a profile folder or file, and its instructions' times.

    Groups of devices that run programs of their own come one after another; what is noted is with
    the first, whose program took the most time.

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

    read = read_profile(path)
    longest = longest_program(read)
    profile = profile_of(read, longest, first_devices)
    found = [(longest, profile), *other_groups(read, profile, first_devices)]
    groups = regrouped([steps_of(read, *item, first_devices) for item in found])
    steps = groups[0]
    wanted = len(steps) - 1
    if step is not None:
        if not step.removeprefix("run ").isdecimal() or int(step.removeprefix("run ")) > wanted:
            raise UsageError(f"--step {step}: {path} has the runs 0 to {wanted}")
        wanted = int(step.removeprefix("run "))
    chosen = [steps[wanted] for steps in groups]
    notes = read.rows.notes | notes | _left_out(read, chosen)
    if len(chosen) > 1:
        notes[GROUPS] = len(chosen)
    return tuple(
        _times(str(path), parts, wanted, {} if number else notes)
        for number, parts in enumerate(chosen)
    )


def _times(path: str, step: Step, number: int, notes: dict[str, int]) -> ModuleTimes:
    """What the devices of one group ran in a step."""
    first = step[0][0]
    return ModuleTimes(
        path=path,
        proto=_proto([part for part, _ in step]),
        runs=_runs(step),
        enclosing=frozenset(
            _named(step, place, item.name)
            for place, (part, _) in enumerate(step)
            for item in part.program.by_name.values()
            if item.opcode in _ENCLOSING
        ),
        device=first.device or ("CPU" if first.backend == "cpu" else ""),
        run=number,
        notes=notes,
        programs=tuple(part.program.name for part, _ in step),
        devices=first.devices,
    )


def _left_out(read: Read, chosen: Sequence[Step]) -> dict[str, int]:
    """Notes on programs of a single host that are not in the steps of its groups."""
    if len(read.files) > 1:
        return {}
    names = {
        device: {part.program.name for part, _ in step}
        for step in chosen
        for device in step[0][0].devices
    }
    alone = {part.program.name for part, _ in chosen[0]}
    others: Counter[str] = Counter()
    for event in read.ran[0].events:
        name = event.program.rpartition("(")[0]
        elsewhere = bool(names) and event.device not in names
        if elsewhere or name not in names.get(event.device, alone):
            others[f"{ELSEWHERE if elsewhere else AS_WELL}, {name}"] += 1
    return {f"ops of another program that ran {words}": count for words, count in others.items()}


def _named(step: Step, place: int, name: str) -> str:
    """What an instruction of one of a step's programs is called in the step."""
    return name if len(step) == 1 else named(place, name)


def _proto(parts: Sequence[Profile]) -> bytes:
    if len(parts) == 1:
        return parts[0].proto
    return joined([parse_module(part.proto) for part in parts]).SerializeToString()


def _runs(step: Step) -> tuple[DeviceRun, ...]:
    """What each rank executed in a step."""
    by_part = [
        (profile, number, runs_in_time(profile), _starts(profile.program))
        for profile, number in step
    ]
    found = []
    for rank, clock in sorted(step[0][0].file_of.items()):
        parts = [
            _run(rank, profile.file_of[rank], runs[rank][number], starts)
            for profile, number, runs, starts in by_part
        ]
        names = [_named(step, place, n) for place, part in enumerate(parts) for n in part.names]
        columns = np.concatenate(
            [[p.start, p.end, p.duration, p.launch, p.stream] for p in parts], axis=1
        )
        order = np.argsort(columns[0], kind="stable")
        found.append(DeviceRun(rank, clock, [names[i] for i in order], *columns[:, order]))
    return tuple(found)


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
