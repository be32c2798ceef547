"""How well ``flint sweep`` keeps the machine's cores busy, on 64 points that nothing is known of.

The idea: parallel efficiency as usual, the time of the whole command on one core divided by the
cores and by the time of the whole command with a process per core.

    efficiency = core / (cores * wall)

Start and end are serial in both.  What the points alone would ideally take is the time on one core
less that of the command once everything is there (its start, hashing, tables, page); against that,
start and end of the sweep count in full:

    of_points = (core - again) / (cores * wall)

One process at a time that may use all cores is measured beside it: the compiler's threads use some
of the others.

The imports' one process for all points is in ``wall``.  So are cores that slow down when all are
busy, because two share one core's units or other processes want them, too; how much that is says
the same ratio for loops that share nothing, measured right before and after.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from captures import LLAMA3, THREE
from cases import FLINT, remover
from measure import measure

Results = dict[str, Any]

SYSTEMS = ("dgx-h100", "gb200-nvl72")
#: Device grids, all of which divide the step's batch and heads.
MESHES = tuple(
    (replica, data, model)
    for replica in (1, 2)
    for data in (4, 8, 16, 32)
    for model in (1, 2, 4, 8)
)


#: Runs a command on the first core that there is.
_ONE_CORE = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.execv(sys.argv[1], sys.argv[1:])
"""
#: Additions of the loop that shares nothing.
_LOOP = "sum(range(20_000_000))"


def loops(cores: int) -> float:
    """Efficiency of ``cores`` independent loops at a time against one, at most about 1."""
    command = [sys.executable, "-S", "-c", _LOOP]

    def seconds(number: int) -> float:
        started = time.perf_counter()
        running = [subprocess.Popen(command) for _ in range(number)]
        for process in running:
            process.wait()
        return time.perf_counter() - started

    return min(seconds(1) for _ in range(3)) / min(seconds(cores) for _ in range(3))


def sweeps(folder: Path, runs: int, *, quick: bool = False) -> Results:
    """Llama-3 8B on 32 meshes and 2 systems; on 4 meshes when it is quick."""
    meshes = MESHES[: 4 if quick else None]
    out = folder / "sweep"
    command = [*FLINT, "sweep", f"{LLAMA3}:train_8b", "-o", str(out), "--json"]
    command += ["--axes", THREE]
    for mesh in meshes:
        command += ["--mesh", ",".join(map(str, mesh))]
    for system in SYSTEMS:
        command += ["--system", system]
    cores = len(os.sched_getaffinity(0))
    before = loops(cores)
    alone = measure([*command, "--jobs", "1"], runs=runs, warm=False, before=remover(out))
    again = measure(command, runs=runs, warm=False)
    pinned = [sys.executable, "-S", "-c", _ONE_CORE, *command, "--jobs", "1"]
    core = measure(pinned, runs=runs, warm=False, before=remover(out))
    together = measure([*command, "--jobs", str(cores)], runs=runs, warm=False, before=remover(out))
    failed = sum(row["error"] is not None for row in json.loads(together.said[-1])["rows"])
    if failed:
        raise RuntimeError(f"{failed} points of the sweep failed")
    remover(out)()
    return {
        **together.to_json(),
        "points": len(meshes) * len(SYSTEMS),
        "cores": cores,
        "alone": alone.wall,
        "core": core.wall,
        "again": again.wall,
        "loops": (before + loops(cores)) / 2,
        "efficiency": core.wall / (cores * together.wall),
        "of_points": (core.wall - again.wall) / (cores * together.wall),
    }
