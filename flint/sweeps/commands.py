"""The ``flint`` commands that make a point of a sweep: one capture, one simulation.

The idea: a sweep does nothing that a user could not do by hand; here or on a node of a cluster, a
point is always computed by these two commands.

    capture(sweep, point, "train.py:step", folder)     # ["capture", "train.py:step", "--mesh", ...]
"""

from __future__ import annotations

from pathlib import Path

from flint.sweeps.description import Sweep
from flint.sweeps.points import Point


def capture(sweep: Sweep, point: Point, step: str, folder: Path) -> list[str]:
    """The command that writes the workload folder of the point's mesh; with one trace, because
    simulations need none.
    """
    if point.program:
        given = ["run", "--world", point.mesh_text, "--ranks", "0", *sweep.capture]
        return [*given, "--json", "-o", str(folder), "--", *point.program]
    command = ["capture", step, "--mesh", point.mesh_text, "--ranks", "0", *sweep.capture]
    if point.axes is not None:
        command += ["--axes", point.axes]
    if sweep.setup is not None:
        command += ["--setup", sweep.setup]
    return [*command, "--json", "-o", str(folder)]


def simulate(sweep: Sweep, point: Point, system: str, folder: Path) -> list[str]:
    """The command that simulates a workload folder on a system."""
    command = ["simulate", str(folder), "--system", system, "--granularity", sweep.granularity]
    if sweep.algorithm is not None:
        command += ["--algorithm", sweep.algorithm]
    for item in point.passes:
        command += ["--pass", item]
    return [*command, *sweep.simulation, "--json"]
