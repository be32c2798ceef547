"""Profiles of JAX -> how long each instruction of the executed program took.

The idea: one program runs on all devices, so an instruction's time is the mean over the devices
and, within a loop, over the iterations of one run.  An asynchronous op's time is that of its start
and of the wait at its end; a communication's, which runs beside kernels, is all the time between.

    times = times_of(Path("profile/"), None)
    times.nanoseconds["fusion.3"]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from flint.converters.profilers.xplane.profile import profile_of
from flint.converters.profilers.xplane.program import Program
from flint.errors import UsageError
from flint.post_execution.modules import ModuleTimes

#: The most devices of a host.
_OF_A_HOST = 1 << 20


def _apart(files: Sequence[Path], backends: set[str], _: int | None) -> list[int]:
    """Arbitrary distinct numbers for devices, because means do not depend on their ranks."""
    return [0 if backends == {"cpu"} else host * _OF_A_HOST for host in range(1, len(files) + 1)]


def times_of(path: Path, step: str | None) -> ModuleTimes:
    """The program in a profile folder or file, and its instructions' times.

    Args:
        path: the folder or file.
        step: number of the run within the trace; the last one by default.

    Raises:
        UsageError: no such run.
        FlintError: as ``profile_of``.
    """
    profile = profile_of(path, first_devices=_apart)
    runs: dict[int, dict[int, int]] = defaultdict(dict)
    for event in profile.events:
        of_device = runs[event.device]
        of_device.setdefault(event.run, len(of_device))
    count = min(len(found) for found in runs.values())
    wanted = count - 1
    if step is not None:
        if not step.removeprefix("run ").isdecimal() or int(step.removeprefix("run ")) >= count:
            raise UsageError(f"--step {step}: {path} has the runs 0 to {count - 1}")
        wanted = int(step.removeprefix("run "))
    starts = _starts(profile.program)
    total: dict[str, int] = defaultdict(int)
    executions: dict[str, int] = defaultdict(int)
    between: dict[str, list[int]] = defaultdict(list)
    begun: dict[tuple[int, str], int] = {}
    for event in profile.events:
        if runs[event.device][event.run] != wanted:
            continue
        start = starts.get(event.hlo)
        if start is None or (event.device, start) not in begun:
            begun[event.device, event.hlo] = event.start
            executions[event.hlo] += 1
        else:
            between[start].append(event.end - begun.pop((event.device, start)))
        total[event.hlo if start is None else start] += event.duration
    return ModuleTimes(
        path=str(path),
        proto=profile.proto,
        nanoseconds={name: round(total[name] / executions[name]) for name in executions},
        between={name: round(sum(spans) / len(spans)) for name, spans in between.items()},
        total=round(sum(total.values()) / len(runs)),
        devices=len(runs),
        backend=profile.backend,
        device=profile.device or ("CPU" if profile.backend == "cpu" else ""),
        run=wanted,
        notes=profile.rows.notes,
    )


def _starts(program: Program) -> dict[str, str]:
    """The end of each asynchronous op -> its start."""
    return {
        item.name: program.by_id[item.operand_ids[0]].name
        for item in program.by_name.values()
        if item.opcode.endswith("-done") and item.operand_ids
    }
