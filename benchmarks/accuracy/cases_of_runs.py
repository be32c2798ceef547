"""Published runs as a workload and a system, or the reason why not.

The idea: a step that accumulates many batches, or a pipeline of many microbatches, lasts as long as
one more batch takes, times their number, and what filling and the optimizer take.  So two short
steps are captured, and the time of the long one lies on the line through both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from published import Run


@dataclass(frozen=True, slots=True)
class Case:
    """A run that our models express.

    Attributes:
        run: the published run.
        measured: seconds of a step.
        system: the system that it ran on, by name or as a file.
        accelerator: the accelerator whose parameters apply.
        key: names the workload: equal for runs that are the same program.
        expressed: how, in words.
        note: what differs from the published run.
        capture: makes the workload of a step of that many batches.
        slice: devices that the innermost network joins; 0: as many as the system says.
        batches: of the run's step.
        recorded: numbers of batches that are captured: ``batches``, or two smaller ones.
        attention: how attention that the captured program spells out is timed; a recipe whose
            kernel our program cannot call says "fused".
        accumulates: products add weights' gradients to their sums (``accumulating.py``).
        passes: what-if passes of the simulation (``decompose``: asynchronous tensor parallelism).
        triton: attention was FlashAttention 1's Triton port, where the program calls PyTorch's.
        cudnn: it was cuDNN's, which PyTorch asks first on Hopper and Blackwell since version 2.11.
    """

    run: Run
    measured: float
    system: str
    accelerator: str
    key: str
    expressed: str
    note: str
    capture: Callable[[int], Any]
    slice: int = 0
    batches: int = 1
    recorded: tuple[int, ...] = (1,)
    attention: str = "as-written"
    accumulates: bool = False
    passes: tuple[str, ...] = ()
    triton: bool = False
    cudnn: bool = False


@dataclass(frozen=True, slots=True)
class NoCase:
    """Why a run is omitted."""

    reason: str


def extrapolated(seconds: dict[int, float], batches: int) -> float:
    """Seconds of a step of that many batches, on the line through two shorter steps.

    Args:
        seconds: of steps, by their number of batches.
        batches: of the step that is asked for.
    """
    if batches in seconds:
        return seconds[batches]
    (few, first), (more, second) = sorted(seconds.items())
    return first + (batches - few) * (second - first) / (more - few)
