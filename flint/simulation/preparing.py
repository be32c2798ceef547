"""From what was captured to what is simulated: attention, granularity, passes; system and costs.

The idea: a simulation, its timeline and its report must be of one and the same graph, with the same
times.

    prepared = prepare(workload, program_graphs(workload, "kernel"), "kernel", passes=())
    prepared.graphs[0]          # of the first program
    costs = setting(workload.mesh.size, "dgx-h100").costs
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flint import registry
from flint.cost.collectives import check_algorithm
from flint.cost.estimators import estimator as estimator_of
from flint.cost.fitting import fit
from flint.cost.hardware import System
from flint.cost.kernels import Estimator
from flint.cost.measured import Measured, read_measured
from flint.cost.prices import Prices
from flint.cost.systems import load_system
from flint.execution.chains import CommunicationOrder, as_communication_order
from flint.graph.graph import WorkloadGraph
from flint.passes import apply
from flint.passes.attention import fuse_attention
from flint.passes.dead_invariants import without_unneeded
from flint.passes.host_lane import with_host_lane
from flint.passes.what_if import Chosen, same, stages, transform
from flint.simulation.durations import Costs
from flint.simulation.replay import Source
from flint.workload.programs import Level, Order
from flint.workload.workload import Workload


@dataclass(frozen=True, eq=False, slots=True)
class Prepared:
    """Graphs per program, in the workload's order.

    Attributes:
        graphs: at the granularity, after the passes.
        kernels: the same between kernels, where values live.
        idle: passes that changed nothing in any program.
    """

    graphs: tuple[WorkloadGraph, ...]
    kernels: tuple[WorkloadGraph, ...]
    idle: tuple[Chosen, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """What a workload runs on.

    Attributes:
        name: of the system.
        system: fitted to the mesh.
        costs: of kernels and communications there.
        fitting: remarks on how the mesh lies on the system.
        measured: the table of measured kernels, where one was given.
    """

    name: str
    system: System
    costs: Costs
    fitting: tuple[str, ...]
    measured: Measured | None


def setting(
    devices: int,
    system: str | System,
    algorithm: str | None = None,
    kernels: Estimator | str | Path | None = None,
    estimator: str = "kernel",
) -> Setting:
    """A system for so many devices, and what things cost there; arguments as of ``simulate``.

    Raises:
        UsageError: unknown system, algorithm or estimator, a mesh that does not map, no such table.
    """
    described = system if isinstance(system, System) else load_system(system)
    fitted, notes = fit(described, devices)
    check_algorithm(algorithm)
    if described.without:
        notes.append(f"{described.name} is simulated without {', '.join(described.without)}")
    modelled = estimator_of(estimator)
    if estimator != "kernel":
        notes.append(f"kernels are timed by the estimator {estimator}")
    if isinstance(kernels, str | Path):
        path = Path(kernels)
        read = registry.converter("scale-sim-report") if path.is_dir() else read_measured
        kernels = read(path, modelled)
    costs = Costs(Prices(fitted, algorithm, kernels or modelled))
    measured = kernels if isinstance(kernels, Measured) else None
    return Setting(described.name, fitted, costs, tuple(notes), measured)


def order_of(workload: Workload, communication_order: str | None) -> CommunicationOrder:
    """Among which communications of a rank the order is kept in a simulation.

    PyTorch runs each process group's communications on a stream of their own (NCCL's), in the
    order in which they were issued; compiled programs have all of them in one order.

    Args:
        workload: what runs.
        communication_order: what was asked for, by name; None: as it really runs.

    Raises:
        UsageError: there is no such order.
    """
    if communication_order is not None:
        return as_communication_order(communication_order)
    measured = any(program.timing is not None for program in workload.programs)
    if workload.order == Order.RECORDED and not measured:
        return CommunicationOrder.COMMUNICATOR
    return CommunicationOrder.RANK


def program_graphs(
    workload: Workload,
    granularity: str,
    *,
    fused_attention: bool = False,
    left: dict[str, int] | None = None,
) -> tuple[WorkloadGraph, ...]:
    """The programs' graphs, op by op: as written, or with attention as the fused kernel.

    Masks that were made for fused attention alone are not made.  A compiled program is what the
    compiler wrote, and at granularity "op" nothing is fused.

    Args:
        workload: what runs.
        granularity: of what is simulated.
        fused_attention: attention that is spelled out is fused.
        left: where attention is counted (text -> count) that stays as written.

    Raises:
        FlintError: there is such attention, and nowhere to count it.
    """
    written = tuple(program.graph for program in workload.programs)
    if not fused_attention or workload.level != Level.PARTITIONED or granularity == "op":
        return written
    found = []
    for program in workload.programs:
        graph = program.graph
        # Of a recorded run is known what ran.
        fused = graph if program.timing is not None else fuse_attention(graph, left)
        found.append(fused if fused is graph else without_unneeded(fused))
    return tuple(found)


def prepare(
    workload: Workload,
    written: Sequence[WorkloadGraph],
    granularity: str,
    passes: Sequence[Chosen],
    *,
    host: Source = Source.NONE,
    launch_overhead: float = 0.0,
) -> Prepared:
    """The graphs that are simulated; other arguments as of ``flint.simulation.running.simulate``.

    Args:
        written: of ``program_graphs``.
        host: where the times of the host's lane come from, of recorded programs.
        launch_overhead: seconds of a launch, where these are modelled.
    """
    if host != Source.NONE:
        each = None if host == Source.MEASURED else round(launch_overhead * 1e9)
        pairs = zip(written, workload.programs, strict=True)
        written = tuple(
            graph if program.timing is None else with_host_lane(graph, program.timing, each)
            for graph, program in pairs
        )
    steps = [stages(apply(graph, granularity), passes) for graph in written]
    graphs = tuple(found[-1] for found in steps)
    idle = tuple(
        item
        for number, item in enumerate(passes)
        if all(same(found[number], found[number + 1]) for found in steps)
    )
    if granularity == "kernel":
        return Prepared(graphs, graphs, idle)
    kernels = tuple(transform(apply(graph, "kernel"), passes) for graph in written)
    return Prepared(graphs, kernels, idle)
