"""What ``flint run`` does for programs that import torch (see ``flint.launching.hooks``).

The idea: the program runs as one rank of a fake cluster from its first line on, on tensors of a
device that is not there.  When its step has run once, it is recorded the next time; the process
leaves the recording and ends.  Then other ranks run, as many as it takes to know all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flint.errors import FlintError
from flint.launching.program import ProgramRequest, SeenStep
from flint.workload.workload import Workload


def prepare(request: ProgramRequest) -> None:
    """Nothing is set before torch is imported."""


def begin(request: ProgramRequest, rank: int, folder: Path) -> None:
    """Make this process a rank of the cluster, and watch for the step."""
    raise FlintError("flint run is not there yet for PyTorch")


def seen() -> Sequence[SeenStep]:
    """The steps that were seen."""
    return ()


def cause(error: Exception) -> Exception:
    """The error that C++ lost on the way, if that is what it is."""
    return error


def workload(request: ProgramRequest, folder: Path, place: Path) -> Workload:
    """The workload of a recorded rank and those that it takes to know all."""
    raise FlintError("flint run is not there yet for PyTorch")
