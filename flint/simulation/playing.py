"""Playing a step: a simulation that keeps when every node of every kind of rank ran.

The idea: ``simulate`` adds up times, and shortens loops without changing the result; code that
draws a step, or looks for what it waited for, needs the start and end of each node.

    played = play(workload, "dgx-h100")
    played.happened.start[0]            # ticks, of the nodes of the first kind of rank
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from flint.cost.hardware import System
from flint.cost.kernels import Estimator
from flint.errors import FlintError
from flint.graph.graph import Ints, WorkloadGraph
from flint.passes.what_if import Chosen, parse_passes
from flint.simulation.actors import Actors, build_actors
from flint.simulation.attention_choice import FUSED, check_attention
from flint.simulation.machine import Run, run
from flint.simulation.preparing import order_of, prepare, program_graphs, setting
from flint.simulation.replay import Replay, replay_of
from flint.workload.workload import Workload


@dataclass(frozen=True, eq=False, slots=True)
class Played:
    """A played step.

    Attributes:
        system: the system that it ran on, fitted to the mesh.
        programs: graph and ranks of each program, as it ran.
        everyone: the kinds of ranks.
        happened: when everything happened.
        replay: which parts are measured.
        notes: how the mesh is placed on the system.
    """

    system: System
    programs: tuple[tuple[WorkloadGraph, Ints], ...]
    everyone: Actors
    happened: Run
    replay: Replay
    notes: tuple[str, ...]


def play(
    workload: Workload,
    system: str | System = "dgx-h100",
    *,
    granularity: str = "kernel",
    algorithm: str | None = None,
    kernels: Estimator | str | Path | None = None,
    estimator: str = "kernel",
    passes: Iterable[str | Chosen] = (),
    attention: str | None = None,
    communication_order: str | None = None,
    communication: str | None = None,
    host: str | None = None,
) -> Played:
    """Run a step in full; arguments as of ``flint.simulation.running.simulate``.

    Raises:
        UsageError: unknown system, granularity, algorithm, pass or order, or the mesh does not map.
        FlintError: too many nodes, or ranks wait for each other forever (``simulate`` says where).
    """
    check_attention(attention)
    on = setting(workload.mesh.size, system, algorithm, kernels, estimator)
    modelled = algorithm is not None or communication_order is not None
    replay = replay_of(workload, communication, host, modelled=modelled)
    left: dict[str, int] = {}  # ``simulate`` reports it
    fused = attention == FUSED
    device = on.system.accelerator
    written = program_graphs(
        workload, granularity, accelerator=device, fused_attention=fused, left=left
    )
    graphs = prepare(
        workload, written, granularity, parse_passes(passes), host=replay.host,
        launch_overhead=device.launch_overhead,
    ).graphs  # fmt: skip
    programs = tuple(
        (graph, program.ranks.array())
        for graph, program in zip(graphs, workload.programs, strict=True)
    )
    everyone = build_actors(
        programs, workload.mesh.size, on.costs.ticks, costs=on.costs.columns,
        order=order_of(workload, communication_order), replay=replay, beside=on.costs.beside,
    )  # fmt: skip
    happened = run(everyone.columns, everyone.members)
    if happened.stuck:
        raise FlintError("ranks wait for each other forever: nothing to show")
    return Played(on.system, programs, everyone, happened, replay, on.fitting)
