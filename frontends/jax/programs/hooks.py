"""What ``flint run`` does for programs that import jax (see ``flint.launching.hooks``).

The idea: before jax creates its client it is given one with the cluster's devices.  From then on
the program's arrays have no values if they would be large or lie on several devices, and its calls
are noted.  When they repeat themselves, the step is captured in this same process, which has the
traced programs, and written as a workload folder for the process of the command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flint.capturing.targets import target
from flint.frontends.jax.lower.host_devices import no_accelerators
from flint.host.template import Template
from flint.launching.own import Own
from flint.launching.program import ProgramRequest, SeenStep
from flint.workload.loading import load
from flint.workload.workload import Workload

if TYPE_CHECKING:
    from flint.frontends.jax.programs.running import Running

PROVIDED: frozenset[str] = frozenset()
PARTLY: Mapping[str, str] = {}
STEP = "a step is a jitted function that is called again (put yours into jax.jit)"

#: Name of the folder for the workload of the program's process.
_WORKLOAD = "workload"
#: The program of this process.
_RUNNING: list[Running] = []


def prepare(request: ProgramRequest, own: Own, template: Template | None) -> None:
    """Avoid waiting for an accelerator of this machine."""
    no_accelerators()


def begin(request: ProgramRequest, own: Own) -> None:
    """Make the cluster's devices jax's, and watch for the step.

    Raises:
        UsageError: a package must be installed to compile for the target.
    """
    if request.target is not None:
        target(request.target)
    from flint.frontends.jax.programs.running import Running

    _RUNNING[:] = [Running(request, own, own.folder / _WORKLOAD)]


def seen() -> Sequence[SeenStep]:
    """The steps that were seen; does not return if the wanted step is one of them."""
    [running] = _RUNNING
    return running.ended()


def caught() -> None:
    """Errors that a program has caught are not looked for."""


def assumed() -> Mapping[str, int]:
    """The values that the program was given for unknown ones."""
    [running] = _RUNNING
    return running.assumptions


def repeated() -> str:
    """What the program repeated without gradients, which may be an evaluation, too."""
    [running] = _RUNNING
    return running.repeated


def cause(error: BaseException) -> BaseException:
    """The error itself; a program that looked for a launcher's variables runs again without."""
    [running] = _RUNNING
    running.run_unlaunched()
    running.failed()
    return error


def workload(request: ProgramRequest, folder: Path, place: Path, template: Template) -> Workload:
    """The workload that the program's process has written."""
    return load(folder / _WORKLOAD)
