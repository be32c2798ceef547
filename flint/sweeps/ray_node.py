"""A task on a node of a Ray cluster: one ``flint`` command on the files sent with it.

The idea: a task unpacks its inputs into a separate folder, runs the command as a process, and sends
back its output and files.  Ray reuses its processes, and each keeps a forking process that has
imported everything (``flint.cli.forks``), so that the second task starts at once.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from flint.errors import FlintError
from flint.host.temporary import temporary_folder
from flint.sweeps import packing, sources
from flint.sweeps.processes import Processes

#: The command's arguments, from the folder with its inputs and the folder that it writes.
Command = Callable[[Path, Path], list[str]]


def work(
    flint: str, forks: str, command: Command, inputs: bytes, step: packing.Shipped | None
) -> tuple[str, str, bytes]:
    """Run a command.

    Args:
        flint: hash of the Flint that the sweep was started with.
        forks: the module of the forking process.
        command: the command to run.
        inputs: an archive.
        step: the step, if the archive has a step's sources.

    Returns:
        Why it failed ("" if it did not), its standard output, and the packed folder that it has
        written.
    """
    if sources.own_key() != flint:
        return (
            f"node {platform.node()} has a different Flint: install the same version on all nodes",
            "",
            b"",
        )
    with temporary_folder(_folder(forks)) as scratch:
        output = scratch / "out"
        try:
            place = _unpacked(inputs, _folder(forks))
            if step is None:
                return "", _processes(forks).run(command(place, output)), b""
            _take_what_is_here(step, place)
            processes = _processes(forks, step.modules, step.variables, tuple(step.paths(place)))
            printed = processes.run(command(place, output))
            return "", printed, packing.pack(output, ("et",))
        except FlintError as error:
            return str(error), "", b""


@cache
def _processes(
    forks: str,
    modules: tuple[str, ...] = (),
    variables: tuple[tuple[str, str], ...] = (),
    paths: tuple[str, ...] = (),
) -> Processes:
    made = Processes(forks, dict(variables), paths)
    made.prepare(modules)
    return made


def _folder(forks: str) -> Path:
    """The forking process, which lasts as long as this process, which Ray may kill."""
    return _processes(forks).folder


def _unpacked(archive: bytes, folder: Path) -> Path:
    """The folder with an archive's content, which later tasks with the same archive reuse."""
    place = folder / hashlib.sha256(archive).hexdigest()
    if not place.is_dir():
        packing.unpack(archive, place)
    return place


def _take_what_is_here(step: packing.Shipped, place: Path) -> None:
    """If a folder's files are also on this node, use that folder: it also has data files."""
    for root, name in zip(step.roots, step.paths(place), strict=True):
        copy = Path(name)
        if copy.is_symlink() or not copy.is_dir():
            continue
        files = [file.relative_to(copy) for file in copy.rglob("*") if file.is_file()]
        if all(_same(Path(root) / file, copy / file) for file in files):
            shutil.rmtree(copy)
            copy.symlink_to(root, target_is_directory=True)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.read_bytes() == other.read_bytes()
    except OSError:
        return False
