"""What a framework does for a program that uses it: the table, and what stands in it.

The idea: a module per framework, found by the registry, with the functions below.  It imports
nothing of its framework when it is imported itself.  One process, the program's, runs ``prepare``
before the program starts and ``begin`` when the program has imported the framework.  When the step
is found, the hooks write what they need into the folder and call ``found``, which ends the process;
``workload`` then runs in the process of the command.

    # frontends/jax/programs/hooks.py
    def begin(request, own): ...    # watch for the step; at its end: found(own.folder, "jax")
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn, Protocol

from flint import registry
from flint.errors import FlintError
from flint.host.template import Template
from flint.launching.own import Own
from flint.launching.program import ProgramRequest, SeenStep, StepChoice
from flint.workload.workload import Workload

_FOUND = "found.json"


class Hooks(Protocol):
    """A framework's module."""

    def prepare(self, request: ProgramRequest, own: Own, template: Template | None) -> None:
        """In the program's process, before it starts: what must be set before an import.

        Where other ranks may be recorded, too, the template is left for them.
        """

    def begin(self, request: ProgramRequest, own: Own) -> None:
        """In the program's process, when the framework has been imported: watch for the step."""

    def seen(self) -> Sequence[SeenStep]:
        """In the program's process, when it has ended: the steps that were seen.

        A step that is only now known to be the one is left now.
        """

    def assumed(self) -> Mapping[str, int]:
        """In the program's process: what it was told of values that nobody knows, text -> count."""

    def cause(self, error: BaseException) -> BaseException:
        """In the program's process: what an error of the program's really is."""

    def workload(
        self, request: ProgramRequest, folder: Path, place: Path, template: Template
    ) -> Workload:
        """In the command's process: the workload of what ``begin`` left in the folder.

        ``place`` is a folder for the folders of further processes, which the template starts if it
        has been left.
        """


def hooks() -> dict[str, Hooks]:
    """Every framework's hooks, by the package whose import begins them."""
    return {name: registry.program_hooks(name) for name in registry.PROGRAMS}


def found(
    folder: Path, framework: str, steps: Sequence[SeenStep] = (), again: StepChoice | None = None
) -> NoReturn:
    """Leave word that the step, or the list of steps, has been found; end the process.

    Where the program must run again for the step, that is the one to look for then.
    """
    document = {
        "framework": framework,
        "steps": [asdict(step) for step in steps],
        "again": again and asdict(again),
    }
    (folder / _FOUND).write_text(json.dumps(document), encoding="utf-8")
    for worker in multiprocessing.active_children():  # of data loaders
        worker.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def read_found(folder: Path) -> tuple[str, list[SeenStep], StepChoice | None]:
    """The framework whose hooks found the step, the steps that were seen, what to run again for.

    Raises:
        FlintError: the process has ended without leaving word.
    """
    left = folder / _FOUND
    if not left.exists():
        raise FlintError("the program's process ended, or became another program, before its step")
    document = json.loads(left.read_text(encoding="utf-8"))
    steps, again = [SeenStep(**step) for step in document["steps"]], document["again"]
    return document["framework"], steps, again and StepChoice(**again)
