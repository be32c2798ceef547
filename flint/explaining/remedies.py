"""What would make a step shorter: passes and simulator options, each tried.

The idea: a cause shows where time goes; a remedy is something that a user can do about it, or buy.
Each remedy is one simulation with one change, and names the option of ``flint simulate`` that gives
the same result.

    remedies_of(workload, system, options, base, played)[0].gain_seconds
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from flint.cost.hardware import System
from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.errors import FlintError
from flint.execution.chains import CommunicationOrder
from flint.execution.node_types import NodeType
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.machine import run
from flint.simulation.playing import Played
from flint.simulation.result import SimulationResult
from flint.simulation.running import simulate
from flint.simulation.waiting_forever import WaitsForever
from flint.workload.workload import Workload

#: How much faster one remedy makes the links.
FASTER: Final = 2
_BUCKET: Final = "25MiB"
#: Kinds of collectives that can be combined into larger ones.
_BUCKETED: Final = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that was tried.

    Attributes:
        name: what was changed.
        how: the option of ``flint simulate`` that does it ("" if there is none).
        step_seconds: the step's time with the change.
        gain_seconds: how much shorter that is; negative if it is longer.
    """

    name: str
    how: str
    step_seconds: float
    gain_seconds: float


@dataclass(frozen=True, slots=True)
class _Trial:
    """A remedy to try; its time is None if ``passes`` change nothing, or not all programs alike."""

    name: str
    how: str
    seconds: Callable[[], float | None]


def remedies_of(
    workload: Workload,
    system: System | str,
    options: Mapping[str, Any],
    base: SimulationResult,
    played: Played,
    others: Mapping[str, Workload],
) -> tuple[Remedy, ...]:
    """All remedies that apply, largest gain first.

    Args:
        workload: what runs.
        system: where it runs.
        options: options of ``simulate``.
        base: its result.
        played: the same step.
        others: the same step on other meshes, by name.
    """
    found = []
    for trial in _trials(workload, system, options, base, played, others):
        seconds = trial.seconds()
        if seconds is not None:
            gain = base.step_seconds - seconds
            found.append(Remedy(trial.name, trial.how, seconds, gain))
    return tuple(sorted(found, key=lambda item: (-item.gain_seconds, item.name)))


def _trials(
    workload: Workload,
    system: System | str,
    options: Mapping[str, Any],
    base: SimulationResult,
    played: Played,
    others: Mapping[str, Workload],
) -> Iterator[_Trial]:
    def with_passes(*passes: str) -> Callable[[], float | None]:
        def seconds() -> float | None:
            try:
                result = simulate(workload, system, **{**options, "passes": passes})
            except WaitsForever:  # the programs' data allows different changes
                return None
            idle = sum(" changed nothing" in note for note in result.notes)
            return None if idle == len(passes) else result.step_seconds

        return seconds

    def with_options(on: System | str = system, **changed: Any) -> Callable[[], float]:
        return lambda: simulate(workload, on, **{**options, **changed}).step_seconds

    described = system if isinstance(system, System) else load_system(system)
    kinds = {
        item.kind for program in workload.programs for item in program.graph.tables.communications
    }
    hoist, defer = "hoist:by=1", "defer:by=1"
    ahead, later = "weights are gathered one op earlier", "gradients are reduced one op later"
    if "all_gather" in kinds:
        yield _Trial(ahead, f"--pass {hoist}", with_passes(hoist))
    if "reduce_scatter" in kinds:
        yield _Trial(later, f"--pass {defer}", with_passes(defer))
    if {"all_gather", "reduce_scatter"} <= kinds:
        how = f"--pass {hoist} --pass {defer}"
        yield _Trial(f"{ahead}, {later}", how, with_passes(hoist, defer))
    if {"all_gather", "reduce_scatter"} & kinds and base.communication != "measured":
        name = "products beside the exchange of their rows, in parts"
        yield _Trial(name, "--pass decompose", with_passes("decompose"))
    # Times that were measured one by one do not show how long a combined one takes.
    for kind in _BUCKETED if base.communication != "measured" else ():
        if kind in kinds:
            item = f"bucket:kind={kind},bytes={_BUCKET}"
            name = f"{kind.replace('_', '-')}s in buckets of {_BUCKET}"
            yield _Trial(name, f"--pass {item}", with_passes(item))
    if kinds and base.communication == "measured":
        name = f"communications take 1/{FASTER} of their measured time"
        yield _Trial(name, "", lambda: _faster(played))
    elif kinds:
        if base.communication_order == CommunicationOrder.RANK:
            order = CommunicationOrder.COMMUNICATOR
            how = f"--communication-order {order}"
            name = "communicators in parallel"
            yield _Trial(name, how, with_options(communication_order=order))
        links = tuple(
            replace(tier, bandwidth=FASTER * tier.bandwidth) for tier in described.network
        )
        on = replace(described, network=links)
        yield _Trial("links with twice the bandwidth", "--system", with_options(on))
    if base.host == "measured":
        name = "the host launches in time, and kernels start at once"
        yield _Trial(name, "--host none", with_options(host="none"))
    if base.kernels == "modelled":
        plain = without(described, ("launches",))
        yield _Trial("launches cost nothing", "--without launches", with_options(plain))
        if base.granularity == "kernel":
            name = "kernels between communications are launched as one"
            yield _Trial(name, "--granularity region", with_options(granularity="region"))
    for folder, other in others.items():
        yield _Trial(f"mesh {other.mesh}", folder, _of_another(other, system, options))


def _of_another(
    other: Workload, system: System | str, options: Mapping[str, Any]
) -> Callable[[], float]:
    def seconds() -> float:
        try:
            return simulate(other, system, **options).step_seconds
        except FlintError as error:
            raise FlintError(f"mesh {other.mesh}: {error}") from error

    return seconds


def _faster(played: Played) -> float:
    """Seconds of the step with faster communications; waiting times follow from that."""
    actors = []
    for actor in played.everyone.columns:
        talks = (actor.types == NodeType.COLL) | (actor.types == NodeType.SEND)
        actors.append(
            replace(
                actor,
                ticks=np.where(talks & (actor.ticks > 0), actor.ticks // FASTER, actor.ticks),
            )
        )
    return run(actors, played.everyone.members).ticks / TICKS_PER_SECOND
