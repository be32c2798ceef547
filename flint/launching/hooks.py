"""A framework's hooks for programs that use it: the table and the interface.

The idea: one module per framework, found by the registry, has the functions below.  Importing it
does not import the framework.  One process, the program's, runs ``prepare`` before the program
starts and ``begin`` when the program has imported the framework.  When the step is found, the hooks
write what they need into the folder and call ``found``, which ends the process; ``workload`` then
runs in the command's process.

    # frontends/jax/programs/hooks.py
    def begin(request, own): ...    # watch for the step; at its end: found(own.folder, "jax")
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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

    #: What is seen as a step, for programs in which none was.
    STEP: str
    #: Packages that the program gets from Flint where they are not installed.
    PROVIDED: Collection[str]
    #: Packages of which the program needs only a part -> what installs that.
    PARTLY: Mapping[str, str]

    def prepare(self, request: ProgramRequest, own: Own, template: Template | None) -> None:
        """In the program's process, before it starts: set what must be set before an import.

        If other ranks may be recorded, too, the template is kept for them.
        """

    def begin(self, request: ProgramRequest, own: Own) -> None:
        """In the program's process, after the framework was imported: watch for the step."""

    def caught(self) -> BaseException | None:
        """In the program's process, when it has ended: an error that ended its training.

        None if there was none, or if it is not known: the program went on behind it.
        """

    def seen(self) -> Sequence[SeenStep]:
        """In the program's process, when it has ended: the steps that were seen.

        If only now the right step is known, it is written now.
        """

    def assumed(self) -> Mapping[str, int]:
        """In the program's process: the assumed values, text -> count."""

    def cause(self, error: BaseException) -> BaseException:
        """In the program's process: the real cause of a program's error."""

    def repeated(self) -> str:
        """In the program's process, when it has failed: what may be its step, by the name of which
        ``--step`` captures it: "update at train.py:31, 20 times"; "" for nothing.
        """

    def workload(
        self, request: ProgramRequest, folder: Path, place: Path, template: Template
    ) -> Workload | StepChoice:
        """In the command's process: the workload from the files that ``begin`` left in the folder,
        or the step for which the program must run again.

        ``place`` is a folder for the folders of further processes, which the template starts if it
        was kept.
        """


def hooks() -> dict[str, Hooks]:
    """Every framework's hooks, by the package whose import starts them."""
    return {name: registry.program_hooks(name) for name in registry.PROGRAMS}


def found(
    folder: Path,
    framework: str,
    steps: Sequence[SeenStep] = (),
    again: StepChoice | None = None,
    failure: str = "",
) -> NoReturn:
    """Record that the step, or the list of steps, has been found, and end the process.

    If the program must run again for the step, ``again`` is the step to look for then.  If it has
    failed behind the steps in the list, ``failure`` says how.
    """
    document = {
        "framework": framework,
        "steps": [asdict(step) for step in steps],
        "again": again and asdict(again),
        "failure": failure,
    }
    (folder / _FOUND).write_text(json.dumps(document), encoding="utf-8")
    for worker in multiprocessing.active_children():  # those of data loaders
        worker.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def without_launcher(request: ProgramRequest, own: Own) -> StepChoice | None:
    """The same step in a run without a launcher's variables, for frameworks of one process.

    ``python train.py`` sets none.  They are there because PyTorch's programs are often named so;
    a program that looks whether they are set would take itself for one of many.  None if it does
    not look, or runs so already.
    """
    step = request.step
    if not own.looked or step.unlaunched or request.program.is_launched:
        return None
    return replace(step, unlaunched=own.looked)


@dataclass(frozen=True, slots=True)
class Found:
    """What a program's process has found.

    Attributes:
        framework: the framework whose hooks found it.
        steps: the steps that were seen.
        again: the step to run the program again for; None if that need not be.
        failure: how the program failed behind the steps in a list; "" if it did not.
    """

    framework: str
    steps: list[SeenStep]
    again: StepChoice | None
    failure: str


def read_found(folder: Path) -> Found:
    """What a program's process has left in its folder.

    Raises:
        FlintError: the process has ended without a record.
    """
    left = folder / _FOUND
    if not left.exists():
        raise FlintError("the program's process ended, or became another program, before its step")
    document = json.loads(left.read_text(encoding="utf-8"))
    steps, again = [SeenStep(**step) for step in document["steps"]], document["again"]
    return Found(document["framework"], steps, again and StepChoice(**again), document["failure"])


def list_steps(folder: Path, begun: Mapping[str, Hooks], failure: str = "") -> None:
    """Record the steps that the hooks have seen as the list, and end the process.

    A program that has failed before any step returns: its error says more than an empty list.
    """
    steps = {framework: hook.seen() for framework, hook in begun.items()}
    framework = max(steps, key=lambda item: len(steps[item]), default="")
    listed = steps.get(framework, ())
    if listed or not failure:
        found(folder, framework, listed, failure=failure)
