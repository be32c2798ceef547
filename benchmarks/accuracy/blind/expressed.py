"""Recipes as captured steps, and as the sum of them that gives the recipe's step.

The idea: a deep model's step is a line in its layers, a model with two kinds of layers lies between
those with either, a step of many batches is a line in them (``cases_of_runs``).  So a step is a sum
of captured steps, whose weights add up to 1:

    80 layers, of 4 and of 8 that are captured      -18 x (4 layers) + 19 x (8 layers)
    40 local and 8 global layers of 48              5/6 x (48 local) + 1/6 x (48 global)
    27 of 32 layers in f4                           27/32 x (all in f4) + 5/32 x (none)

What PyTorch's host takes to launch the step is such a sum, too, and the step the longer of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import accuracy
from cases_of_runs import Case, NoCase, extrapolated
from published import Run
from recipes import Recipe

from flint.cost.kernels import Estimator
from flint.cost.simplified import without
from flint.cost.uncertainty import Spread, spread_of
from flint.simulation.result import SimulationResult


@dataclass(frozen=True, slots=True)
class Part:
    """A captured step in a sum.

    Attributes:
        weight: its share.
        case: the captured step.
        kernels: the estimator of kernels, if it is not the system alone.
        hidden: what share of its exposed communication is beside other work, times its weight.
    """

    weight: float
    case: Case
    kernels: Estimator | None = None
    hidden: float = 0.0


@dataclass(frozen=True, slots=True)
class Expressed:
    """A recipe that our models express.

    Attributes:
        parts: steps that add up to the recipe's.
        batch: sequences of the step.
        differs: what differs from the published run.
        memory: whether activations are kept as in the published run.
        host: seconds in which the device has nothing to do while the host reads its values.
    """

    parts: tuple[Part, ...]
    batch: int
    differs: str
    memory: bool = True
    host: float = 0.0


@dataclass(frozen=True, slots=True)
class Predicted:
    """A simulated step.

    Attributes:
        seconds: its duration.
        spread: the range of the duration.
        peak: peak memory in bytes.
        live: the same without free blocks of PyTorch's allocator: allocated, not reserved.
        room: memory of a device in bytes.
    """

    seconds: float
    spread: Spread
    peak: float
    live: float
    room: float


def as_run(recipe: Recipe, words: Iterable[str] = (), accumulated: int = 1, each: int = 0) -> Run:
    """A recipe as the readers of published runs want it; its step takes no known time.

    Args:
        recipe: the row.
        words: of its parallelism that ``torch_cases`` reads.
        accumulated: batches of a step.
        each: sequences of one of them per data-parallel rank.
    """
    return Run(
        source=recipe.id,
        model=recipe.model,
        gpus=str(recipe.devices),
        gpu_type=recipe.accelerator,
        parallelism="; ".join(words),
        batch_seq=f"mbs={each} accum={accumulated} seq={recipe.sequence}",
        precision=recipe.compute,
        figures={"step_time_s": float("nan")},
        url=recipe.url,
    )


def by_layers(
    case: Callable[[int], Case | NoCase], layers: int, few: tuple[int, int]
) -> tuple[Part, ...] | NoCase:
    """The step of that many layers on the line through two with fewer.

    Args:
        case: of a number of layers.
        layers: of the model.
        few: that are captured.
    """
    if layers <= max(few):
        few = (layers, layers + 1)
    low, high = few
    share = (layers - low) / (high - low)
    found = []
    for weight, count in ((1 - share, low), (share, high)):
        made = case(count)
        if isinstance(made, NoCase):
            return made
        if weight:
            found.append(Part(weight, made))
    return tuple(found)


def weighted(parts: Iterable[Part], share: float, kernels: Estimator | None) -> tuple[Part, ...]:
    """A share of a sum, timed by another estimator."""
    return tuple(replace(part, weight=part.weight * share, kernels=kernels) for part in parts)


def _allocated(result: SimulationResult) -> float:
    """The most that any rank's tensors need."""
    return max(
        sum(held for name, held in item.memory.items() if not name.startswith("free blocks"))
        for item in result.programs
    )


def _launching(result: SimulationResult) -> float:
    """Seconds that PyTorch's host takes to launch the step of the rank with most to launch."""
    return max(item.launch_seconds for item in result.programs)


def predicted(expressed: Expressed, recipe: Recipe, cache: Path) -> Predicted:
    """Simulate a recipe's step; missing captures are added to ``cache``.

    Args:
        expressed: the step.
        recipe: what it is of.
        cache: folder of captures.
    """
    seconds = launches = exposed = peak = live = 0.0
    system = None
    for part in expressed.parts:
        system = accuracy.system_of(part.case)
        workloads = accuracy.workloads_of(part.case, cache)
        hosted = accuracy.results_of(workloads, part.case, system, kernels=part.kernels)
        results = hosted
        if any(_launching(item) >= item.step_seconds for item in hosted.values()):
            alone = without(system, ("host",))
            results = accuracy.results_of(workloads, part.case, alone, kernels=part.kernels)

        def of(figure: Callable[[SimulationResult], float], found=results, case=part.case) -> float:
            values = {count: float(figure(item)) for count, item in found.items()}
            return extrapolated(values, case.batches)

        if not recipe.graphed:
            launches += part.weight * of(_launching, hosted)
        waited = of(lambda item: item.exposed_communication_seconds)
        seconds += part.weight * of(lambda item: item.step_seconds) - part.hidden * waited
        exposed += (part.weight - part.hidden) * waited
        peak += part.weight * of(lambda item: item.peak_memory_bytes)
        live += part.weight * of(_allocated)
    assert system is not None
    seconds = max(seconds, launches) + expressed.host
    spread = spread_of(system, min(1.0, max(0.0, exposed / seconds)), recipe.program)
    return Predicted(seconds, spread, peak, live, float(system.accelerator.memory_bytes))
