"""The result of a simulation: seconds, bytes and shares, for the workload and for each program.

The idea: every rank's time is compute, exposed communication (it communicates and does not compute)
or idle (it waits for other ranks or has nothing to do); the three add up to the step.  Numbers of a
program are means over its ranks, numbers of the workload means over all ranks that run kernels;
only memory is the maximum and FLOPs are the sum.

    result.step_seconds, result.programs[0].classes[0].name
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from flint.cost.hardware import System
from flint.cost.uncertainty import Spread, program_of, spread_of
from flint.graph.graph import WorkloadGraph
from flint.graph.stated import without_unknown


@dataclass(frozen=True, slots=True)
class ClassRow:
    """Work of one kind, per rank.

    Attributes:
        name: "matmul", "attention", "elementwise" ..., or a communication and its axes:
            "all_gather over data".
        communicates: whether it is communication.
        count: nodes.
        seconds: their total time.
        exposed_seconds: for communication, the time in which the rank computes nothing.
        flops: without transcendentals.
        bytes: read and written by kernels; for communication, what a rank contributes.
    """

    name: str
    communicates: bool
    count: float
    seconds: float
    exposed_seconds: float
    flops: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Figures:
    """Results for a workload and for each of its programs.

    Figures that an engine or a profile does not give are not a number, and null in JSON.

    Attributes:
        step_seconds: from the start to the end of the last rank.
        compute_seconds: time in which a rank computes.
        communication_seconds: time in which a rank sends or takes part in a collective.
        exposed_communication_seconds: the part of this time in which it does not compute.
        idle_seconds: time in which it does neither.
        peak_memory_bytes: the most that any rank needs.
        flops: total of all ranks, without transcendentals.
        model_flops: the matrix products among these that are not recomputed; recomputation inside
            the backward pass of a fused attention kernel is not recognised and counts.
        mfu: model FLOPs relative to what matrix units could do in the step, each at the peak of its
            element type: ideal seconds / step seconds.
    """

    step_seconds: float
    compute_seconds: float
    communication_seconds: float
    exposed_communication_seconds: float
    idle_seconds: float
    peak_memory_bytes: float
    flops: float
    model_flops: float
    mfu: float


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """One program.

    Attributes:
        name, ranks, rank_count: the program, and the ranks that run it.
        figures: means over its ranks; its step ends when its own last rank ends.
        memory: bytes of inputs by role, "temporaries" at the peak, and for PyTorch the free blocks
            of its allocator.
        classes: most time first.
        host_memory_bytes: the most that the program keeps in the host's memory.
        launch_seconds: what PyTorch's host takes to launch the ops of a captured step one by one,
            on the rank with the most; 0 where no such host is modelled.
    """

    name: str
    ranks: str
    rank_count: int
    figures: Figures
    memory: dict[str, int]
    classes: tuple[ClassRow, ...]
    host_memory_bytes: int = 0
    launch_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """A simulated step.

    Attributes:
        system, granularity, engine: what was simulated, and by which engine.
        communication_order: which communications of a rank kept their order.
        ranks: number of ranks; ``behaviours`` of them had to be simulated.
        kernels, communication, host: the source of their times: "measured" in a recorded run, or
            "modelled"; for the host also "none".
        memory_bytes: memory of a device.
        reserve_bytes: what the runtime takes of it in addition to the program: CUDA's context,
            NCCL's buffers (``flint.cost.reserve``).
        figures: figures of the whole workload.
        programs: results of each program.
        notes: what the reader should know.
        spread: range of its times; None if kernels are measured.
    """

    system: str
    granularity: str
    engine: str
    communication_order: str
    ranks: int
    behaviours: int
    memory_bytes: int
    figures: Figures
    programs: tuple[ProgramResult, ...]
    notes: tuple[str, ...]
    kernels: str = "modelled"
    communication: str = "modelled"
    host: str = "none"
    spread: Spread | None = None
    reserve_bytes: int = 0

    @property
    def step_seconds(self) -> float:
        """Seconds from the start to the end of the last rank."""
        return self.figures.step_seconds

    @property
    def compute_seconds(self) -> float:
        """Seconds that a rank computes, mean over ranks."""
        return self.figures.compute_seconds

    @property
    def communication_seconds(self) -> float:
        """Seconds that a rank communicates, mean over ranks."""
        return self.figures.communication_seconds

    @property
    def exposed_communication_seconds(self) -> float:
        """Seconds that a rank communicates and does not compute, mean over ranks."""
        return self.figures.exposed_communication_seconds

    @property
    def peak_memory_bytes(self) -> float:
        """The most bytes that any rank needs."""
        return self.figures.peak_memory_bytes

    @property
    def flops(self) -> float:
        """FLOPs of all ranks together."""
        return self.figures.flops

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, between 0 and 1."""
        return self.figures.mfu

    @property
    def fits(self) -> bool | None:
        """Whether every rank's peak fits into its device together with what the runtime takes; None
        if the peak is unknown.
        """
        peak = self.figures.peak_memory_bytes
        return None if math.isnan(peak) else peak + self.reserve_bytes <= self.memory_bytes

    def to_json(self) -> dict[str, Any]:
        """The result as plain types; the workload's figures are at the top."""
        document = asdict(self, dict_factory=without_unknown)
        document["range"] = document.pop("spread")
        document = {**document.pop("figures"), "fits": self.fits, **document}
        document["programs"] = [
            {**program.pop("figures"), **program} for program in document["programs"]
        ]
        if self.spread is not None:
            document["range"]["times"] = _ranges(self.figures, self.spread)
            for shown, program in zip(document["programs"], self.programs, strict=True):
                shown["range"] = {"times": _ranges(program.figures, self.spread)}
        return document


def spread_of_step(system: System, figures: Figures, graphs: Iterable[WorkloadGraph]) -> Spread:
    """The range of a modelled step's times on a system."""
    exposed = figures.exposed_communication_seconds
    known = figures.step_seconds > 0 and not math.isnan(exposed)
    share = min(1.0, exposed / figures.step_seconds) if known else 0.0
    return spread_of(system, share, program_of(graphs))


#: Times of ``Figures`` that have a range.
_TIMES: Final = (
    "step_seconds", "compute_seconds", "communication_seconds", "exposed_communication_seconds",
    "idle_seconds",
)  # fmt: skip


def _ranges(figures: Figures, spread: Spread) -> dict[str, list[float] | None]:
    """The bounds of each known time."""
    times = {name: getattr(figures, name) for name in _TIMES}
    return {
        name: None if math.isnan(time) else list(spread.bounds(time))
        for name, time in times.items()
    }
