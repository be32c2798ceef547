"""What a published run becomes: a workload and a system, or a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from published import Run


@dataclass(frozen=True, slots=True)
class Case:
    """A run that our models express.

    Attributes:
        run: what is published.
        measured: seconds of a step.
        system: that it ran on, by name or as a file.
        accelerator: whose parameters decide.
        key: names the workload: equal for runs that are the same program.
        expressed: how, in words.
        note: what differs from the published run.
        capture: makes the workload.
        slice: devices that the innermost network joins; 0: as many as the system says.
    """

    run: Run
    measured: float
    system: str
    accelerator: str
    key: str
    expressed: str
    note: str
    capture: Callable[[], Any]
    slice: int = 0


@dataclass(frozen=True, slots=True)
class NoCase:
    """Why a run is left out."""

    reason: str
