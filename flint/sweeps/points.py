"""The points of a sweep: their captures and simulations, and the names of these on disk.

The idea: a capture and a simulation are named by a hash of everything that decides their result, so
that an existing file is valid and a changed one does not exist yet.

    sweep = Sweep(("train.py:step",), ("64,8",), ("dgx-h100",), Path("out"))
    [point] = points(sweep)
    point.workload, point.result        # out/workloads/<key>, out/points/<key>.json
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flint.cost.collectives import check_algorithm
from flint.cost.hardware import System
from flint.cost.systems import load_system
from flint.errors import UsageError
from flint.mesh.mesh import Mesh, parse_mesh, parse_sizes
from flint.passes import check_granularity
from flint.passes.what_if import parse_passes
from flint.sweeps import sources
from flint.sweeps.description import MARK, NO_PASS, Sweep
from flint.sweeps.varied import commands_of
from flint.workload.folder import DOCUMENT, is_workload_folder, read_document

#: Digits of a key that name a file: 96 bits.
_DIGITS = 24
#: Separator of passes; but ``reduce-scatter+all-gather`` is an algorithm of one.
_JOINS: Final = re.compile(r"\+(?!all[-_]gather\b)")


@dataclass(frozen=True, slots=True)
class Point:
    """One step on one mesh and one system, after some passes.

    Attributes:
        step: FILE.py:FUNCTION, or a workload folder, or the values that make a program's command,
            ``tp=8 pp=2``.
        mesh: device grid.
        axes: names of its axes as given; None: the step's.
        system: as given.
        system_name: the system's own name, or as given if other systems have the same name.
        passes: what-if passes.
        workload: its capture's folder, which points of the same step and mesh share.
        result: file of the simulation's result.
        program: the command of a whole program; empty for a step.
    """

    step: str
    mesh: Mesh
    axes: str | None
    system: str
    system_name: str
    passes: tuple[str, ...]
    workload: Path
    result: Path
    program: tuple[str, ...] = ()

    @property
    def mesh_text(self) -> str:
        """``64,8``"""
        return ",".join(map(str, self.mesh.shape))


def points(sweep: Sweep) -> list[Point]:
    """All points, step by step, then mesh by mesh, without duplicates.

    Raises:
        UsageError: no mesh, no such file, mesh, system, granularity, algorithm or pass, or a value
            that varies and has no place in the program's command.
        FlintError: a workload folder is damaged.
    """
    check_granularity(sweep.granularity)
    check_algorithm(sweep.algorithm)
    if not (sweep.steps or sweep.program) or not sweep.systems or not sweep.passes:
        raise UsageError("a sweep needs at least one step and one --system")
    systems: dict[str, tuple[System, str]] = {}
    for text in sweep.systems:
        system = load_system(text)
        systems.setdefault(repr(system), (system, text))
    names = Counter(system.name for system, _ in systems.values())
    variants = list(dict.fromkeys(map(_variant, sweep.passes)))
    found = []
    for capture in _captures(sweep):
        for system, text in systems.values():
            for passes in variants:
                result = _key(
                    capture.key, repr(system), sweep.granularity, sweep.algorithm, passes,
                    [(part, _binary(part)) for part in sweep.simulation],
                )  # fmt: skip
                found.append(
                    Point(
                        capture.step, capture.mesh, capture.axes, text,
                        system.name if names[system.name] == 1 else text, passes,
                        capture.workload or sweep.folder / "workloads" / capture.key,
                        sweep.folder / "points" / f"{result}.json",
                        capture.program,
                    )
                )  # fmt: skip
    return found


@dataclass(frozen=True, slots=True)
class _Capture:
    """What points on several systems share.

    Attributes:
        key: names it on disk: a hash of what decides its result.
        workload: the user's own folder; None for a capture of the sweep.
        others: as in ``Point``.
    """

    step: str
    mesh: Mesh
    axes: str | None
    key: str
    program: tuple[str, ...] = ()
    workload: Path | None = None


def _captures(sweep: Sweep) -> Iterator[_Capture]:
    """All captures, and the folders of those that there are already."""
    meshes = list(dict.fromkeys(_mesh(text, sweep.axes) for text in sweep.meshes))

    def on_meshes(step: str, program: tuple[str, ...], *parts: str) -> Iterator[_Capture]:
        if not meshes:
            raise UsageError(f"{step}: no size: give --mesh, or --world for a program")
        for mesh, axes in meshes:
            key = _key(*parts, mesh.shape, axes, sweep.setup, sweep.capture)
            yield _Capture(step, mesh, axes, key, program)

    if sweep.program:
        for name, words in commands_of(sweep.program, dict(sweep.varied)).items():
            yield from on_meshes(name, words, sources.key_of_program(words), *words)
    captured = [step for step in sweep.steps if is_workload_folder(Path(step))]
    if len(captured) == len(sweep.steps) and not sweep.program:
        of_captures = {
            "--mesh": sweep.meshes, "--axes": sweep.axes, "--setup": sweep.setup,
            " ".join(sweep.capture): sweep.capture,
        }  # fmt: skip
        for option, value in of_captures.items():
            if value:
                raise UsageError(f"{option} is for steps; a workload folder is captured already")
    for step in dict.fromkeys(sweep.steps):
        if step in captured:
            yield _captured_already(Path(step))
        else:
            yield from on_meshes(step, (), *_content(step))


def _captured_already(folder: Path) -> _Capture:
    """A workload folder, whose document has the checksums of its files."""
    stated = read_document(folder).mesh
    mesh = Mesh(tuple(stated.shape), tuple(stated.axes))
    key = _key(sources.key_of([folder / DOCUMENT]))
    return _Capture(str(folder), mesh, ",".join(mesh.axes), key, workload=folder.absolute())


def _mesh(text: str, axes: str | None) -> tuple[Mesh, str | None]:
    """A mesh, and the names of its axes if they are given, with it or apart."""
    sizes = parse_sizes(text)
    if axes is None and isinstance(sizes, dict):
        axes = ",".join(sizes)
    return parse_mesh(text, axes), axes


def _content(step: str) -> tuple[str, str, str]:
    """A hash of all that a capture of the step depends on, and its file's and function's names."""
    file, colon, function = step.rpartition(":")
    if (Path(step) / MARK).is_file():
        raise UsageError(f"{step} is a sweep's folder: its captures are {step}/workloads/*")
    if not colon or not function:
        raise UsageError(f"{step}: expected FILE.py:FUNCTION, or a workload folder")
    if not Path(file).is_file():
        raise UsageError(f"{file}: no such file (expected FILE.py:FUNCTION)")
    return sources.key_of(sources.imported_files(Path(file))), Path(file).name, function


def _variant(text: str) -> tuple[str, ...]:
    """``hoist:by=1+scale:factor=2`` as its passes; ``none`` is not a pass."""
    passes = () if text == NO_PASS else tuple(part.strip() for part in _JOINS.split(text))
    parse_passes(passes)
    return passes


def _binary(option: str) -> str:
    """A hash of the file that an option names, so that another build of a simulator has another
    hash.
    """
    path = Path(option)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _key(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]
