"""Explaining a step: where its time goes, why, and what would help.

The idea: the step is simulated (or replayed from a profile), its critical path is found and broken
down, and every cause and every remedy is tried in another simulation.

    explanation = explain(flint.load("out"), "dgx-h100")
    explanation.causes[0].name, explanation.causes[0].gain_seconds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from flint.cost.hardware import System
from flint.errors import FlintError
from flint.explaining.breakdown import Breakdown, breakdown
from flint.explaining.causes import Cause, causes_of
from flint.explaining.critical_path import CriticalPath, Part, critical_path
from flint.explaining.holistic import holistic
from flint.explaining.meetings import Meetings, meetings_of
from flint.explaining.named_parts import NamedParts, Sort, named_parts
from flint.explaining.remedies import Remedy, remedies_of
from flint.explaining.step_breakdown import kernels_of, of_host, waiting_for_host
from flint.graph.stated import without_unknown
from flint.observed.device_events import DeviceEvents
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.playing import Played, play
from flint.simulation.result import SimulationResult
from flint.simulation.running import simulate
from flint.workload.workload import Workload

#: The most ranks whose waiting times are listed.
_RANKS = 64


@dataclass(frozen=True, slots=True)
class PathShare:
    """A part of the critical path: kernel, communication, host or gap."""

    sort: str
    seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class RankWait:
    """How long a group of identical ranks waited, and how long others waited for them.

    Attributes:
        rank, ranks: the first rank of the group, and the number of ranks.
        program: the program that they run.
        waited_seconds: how long each of them waited for others and did nothing else.
        awaited_seconds: how long other ranks waited for these, as the mean over all ranks.
    """

    rank: int
    ranks: int
    program: str
    waited_seconds: float
    awaited_seconds: float


@dataclass(frozen=True, slots=True)
class DeviceBreakdown:
    """Where the time of one rank's device goes.

    Attributes:
        rank, program: the rank and its program; for a whole trace, its file.
        breakdown: its time.
    """

    rank: int
    program: str
    breakdown: Breakdown


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a step takes as long as it does.

    Attributes:
        result: the result of the explained simulation.
        mesh: the workload's mesh.
        path: parts of the critical path, largest first; they add up to the step.
        pieces: number of pieces of the critical path.
        waits: for ranks that waited or were waited for; None if only one rank's trace is known.
        causes: largest gain first.
        remedies: largest gain first.
        step: breakdown of the first rank of each program.
        traces: whole traces, as HolisticTraceAnalysis counts them; empty for captures.
        notes: what the reader should know.
    """

    result: SimulationResult
    mesh: str
    path: tuple[PathShare, ...]
    pieces: int
    waits: tuple[RankWait, ...] | None
    causes: tuple[Cause, ...]
    remedies: tuple[Remedy, ...]
    step: tuple[DeviceBreakdown, ...]
    traces: tuple[DeviceBreakdown, ...]
    notes: tuple[str, ...]

    @property
    def step_seconds(self) -> float:
        """Time of the simulated or replayed step."""
        return self.result.step_seconds

    def to_json(self) -> dict[str, Any]:
        """The explanation as plain types; unknown values are None."""
        document: dict[str, Any] = asdict(self, dict_factory=without_unknown)
        result = self.result.to_json()
        del document["result"]
        return {**{name: result[name] for name in _OF_RESULT}, **document}


def explain(
    workload: Workload,
    system: System | str | None = None,
    *,
    traces: Sequence[DeviceEvents] = (),
    others: Mapping[str, Workload] | None = None,
    **options: Any,
) -> Explanation:
    """Why a workload's step takes as long as it does.

    Args:
        workload: captured or converted.
        system: the cluster; by default the one with the profile's devices, else dgx-h100.
        traces: device events of the profiles that it was converted from.
        others: the same step on other meshes, by name; each is tried as a remedy.
        options: ``granularity``, ``communication``, ``host``, ``communication_order`` and others of
            ``flint.simulation.running.simulate``.

    Raises:
        UsageError, FlintError: as ``simulate``.
    """
    on = workload.usual_system if system is None else system
    base = simulate(workload, on, **options)
    played = play(workload, on, **options)
    met = meetings_of(played)
    path = critical_path(played, met)
    if not len(path):
        raise FlintError("nothing in the step takes time: there is nothing to explain")
    on_hosts = workload.options.get("device") == "CPU"
    named = named_parts(played, workload.mesh, on_hosts)
    hosts = [program.launch_seconds for program in base.programs]
    launches = round(max(hosts) * TICKS_PER_SECOND)
    traced = np.array([workload.programs[i.program].traced for i in played.everyone.info])
    alone = int(traced.sum()) == 1 and played.everyone.info[int(traced.argmax())].ranks == 1
    blind = alone and workload.mesh.size > 1 and base.communication == "measured"
    return Explanation(
        result=base,
        mesh=str(workload.mesh),
        path=_shares(named, path, launches),
        pieces=len(path),
        waits=None if blind else _waits(workload, played, met),
        causes=causes_of(named, path, met, traced, launches),
        remedies=remedies_of(workload, on, options, base, played, others or {}),
        step=_steps(workload, played, hosts, met if on_hosts else None),
        traces=_wholes(traces),
        notes=(*base.notes, *(_BLIND if blind else ())),
    )


#: Fields of the simulation at the top of the JSON.
_OF_RESULT: Final = (
    "system", "granularity", "communication_order", "ranks", "kernels", "communication", "host",
    "step_seconds", "compute_seconds", "communication_seconds", "exposed_communication_seconds",
    "idle_seconds",
)  # fmt: skip
_BLIND: Final = (
    "one rank's profile does not show how long its collectives waited for other ranks: their "
    "time includes these waits; give the profiles of several ranks",
)


def _shares(named: NamedParts, path: CriticalPath, launches: int) -> tuple[PathShare, ...]:
    sums = dict.fromkeys(Sort, 0)
    for actor, node, part, ticks in zip(
        path.actor.tolist(), path.node.tolist(), path.part.tolist(), path.ticks.tolist(),
        strict=True,
    ):  # fmt: skip
        label = (named.gap if part == Part.GAP else named.work)[actor][node]
        sums[named.names[label].sort] += ticks
    device = named.played.happened.ticks
    step = max(device, launches)
    sums[Sort.HOST] += step - device  # the device waits for launches
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    return tuple(
        PathShare(str(sort), ticks / TICKS_PER_SECOND, ticks / step)
        for sort, ticks in ordered
        if ticks
    )


def _waits(workload: Workload, played: Played, met: Meetings) -> tuple[RankWait, ...]:
    everyone = played.everyone.info
    traced = [workload.programs[info.program].traced for info in everyone]
    ranks = sum(info.ranks for info, known in zip(everyone, traced, strict=True) if known)
    found = [
        RankWait(
            info.rank,
            info.ranks,
            workload.programs[info.program].name,
            float(met.waited[number]) / TICKS_PER_SECOND,
            float(met.blamed[number]) / max(ranks, 1) / TICKS_PER_SECOND,
        )
        for number, info in enumerate(everyone)
        if traced[number] and (met.waited[number] or met.blamed[number])
    ]
    return tuple(sorted(found, key=lambda item: -item.awaited_seconds)[:_RANKS])


def _steps(
    workload: Workload, played: Played, hosts: Sequence[float], met: Meetings | None
) -> tuple[DeviceBreakdown, ...]:
    """The device time of the first rank of each program, whose host takes ``hosts`` seconds.

    If the devices are hosts themselves, ``met`` tells when their ops were able to begin.
    """
    found: dict[int, DeviceBreakdown] = {}
    for number, info in enumerate(played.everyone.info):
        program = workload.programs[info.program]
        kernels = kernels_of(played, number)
        if info.program not in found and program.traced and len(kernels):
            time = breakdown(kernels)
            if met is not None:
                time = of_host(time, played, number, met.ready[number])
            time = waiting_for_host(time, hosts[info.program])
            found[info.program] = DeviceBreakdown(info.rank, program.name, time)
    return tuple(found.values())


def _wholes(traces: Sequence[DeviceEvents]) -> tuple[DeviceBreakdown, ...]:
    return tuple(
        DeviceBreakdown(number if item.rank is None else item.rank, item.path, holistic(item))
        for number, item in enumerate(traces)
        if len(item.name)
    )
