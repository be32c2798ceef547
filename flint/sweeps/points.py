"""The points of a sweep: which capture and which simulation, and their names on disk.

The idea: a capture and a simulation are named by a hash of all that decides their result, so that
what is there is valid and what has changed is simply not there.

    sweep = Sweep("train.py:step", ("64,8",), ("dgx-h100",), Path("out"))
    [point] = points(sweep)
    point.workload, point.result        # out/workloads/<key>, out/points/<key>.json
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from flint.cost.systems import load_system
from flint.errors import UsageError
from flint.mesh import Mesh, parse_mesh
from flint.sweeps import sources

GRANULARITIES = ("op", "kernel", "region")
#: Digits of a key that name a file: 96 bits.
_DIGITS = 24


@dataclass(frozen=True, slots=True)
class Sweep:
    """What to sweep over.

    Attributes:
        step: FILE.py:FUNCTION.
        meshes: device grids as the command line has them.
        systems: names or TOML files.
        folder: where everything goes.
        axes: names of the mesh axes; None: the step's.
        setup: function of the file that makes the arguments; None: the step's.
        granularity: op, kernel or region.
        algorithm: how collectives run; None: the cheapest.
    """

    step: str
    meshes: tuple[str, ...]
    systems: tuple[str, ...]
    folder: Path
    axes: str | None = None
    setup: str | None = None
    granularity: str = "kernel"
    algorithm: str | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One mesh on one system.

    Attributes:
        mesh: device grid.
        axes: names of its axes as given; None: the step's.
        system: as given.
        system_name: what the system calls itself.
        workload: its capture's folder, which points of the same mesh share.
        result: file of the simulation's result.
    """

    mesh: Mesh
    axes: str | None
    system: str
    system_name: str
    workload: Path
    result: Path

    @property
    def mesh_text(self) -> str:
        """``64,8``"""
        return ",".join(map(str, self.mesh.shape))


def points(sweep: Sweep) -> list[Point]:
    """All points, mesh by mesh; what is given twice is there once.

    Raises:
        UsageError: no such file, mesh, system or granularity.
    """
    file, colon, function = sweep.step.rpartition(":")
    if not colon or not function:
        raise UsageError(f"{sweep.step}: expected FILE.py:FUNCTION")
    if not Path(file).is_file():
        raise UsageError(f"{file}: no such file (expected FILE.py:FUNCTION)")
    if sweep.granularity not in GRANULARITIES:
        raise UsageError(f"granularity {sweep.granularity!r}: there are {', '.join(GRANULARITIES)}")
    if not sweep.meshes or not sweep.systems:
        raise UsageError("a sweep needs at least one --mesh and one --system")
    meshes = list(dict.fromkeys(parse_mesh(text, sweep.axes) for text in sweep.meshes))
    described = [(load_system(text), text) for text in sweep.systems]
    systems = list({repr(system): (system, text) for system, text in described}.values())
    content = sources.key(file)
    found = []
    for mesh in meshes:
        capture = _key(content, Path(file).name, function, mesh.shape, sweep.axes, sweep.setup)
        for system, text in systems:
            result = _key(capture, repr(system), sweep.granularity, sweep.algorithm)
            found.append(
                Point(
                    mesh, sweep.axes, text, system.name,
                    sweep.folder / "workloads" / capture,
                    sweep.folder / "points" / f"{result}.json",
                )
            )  # fmt: skip
    return found


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]
