"""From a capture to what is simulated: attention, granularity, passes; system and costs.

The idea: a simulation, its timeline and its report must use the same graph and the same times.

    on = setting(workload.mesh.size, "dgx-h100")
    written = program_graphs(workload, "kernel", accelerator=on.system.accelerator)
    prepare(workload, written, "kernel", passes=()).graphs[0]       # of the first program
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flint import registry
from flint.cost.collectives import check_algorithm
from flint.cost.estimators import estimator as estimator_of
from flint.cost.fitting import fit
from flint.cost.hardware import Accelerator, System
from flint.cost.kernels import Estimator
from flint.cost.measured import Measured, read_measured
from flint.cost.prices import Prices
from flint.cost.systems import load_system
from flint.execution.chains import CommunicationOrder, as_communication_order
from flint.graph.graph import WorkloadGraph
from flint.passes import apply
from flint.passes.attention.fuse import fuse_attention
from flint.passes.dead_invariants import without_unneeded
from flint.passes.grouped_as_dense import on_device
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
        graphs: at the chosen granularity, after the passes.
        kernels: the same at kernel granularity, to follow the lifetimes of values.
        idle: passes that changed nothing in any program.
    """

    graphs: tuple[WorkloadGraph, ...]
    kernels: tuple[WorkloadGraph, ...]
    idle: tuple[Chosen, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """The system that a workload runs on, with its costs.

    Attributes:
        name: name of the system.
        system: the system, fitted to the mesh.
        costs: costs of kernels and communications.
        fitting: remarks on how the mesh is placed on the system.
        measured: the table of measured kernels, if one was given.
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
    """A system for a number of devices, with its costs; arguments as of ``simulate``.

    Raises:
        UsageError: unknown system, algorithm or estimator, the mesh does not map, or no such table.
    """
    described = system if isinstance(system, System) else load_system(system)
    fitted, notes = fit(described, devices)
    if devices == 1:
        one = fitted.accelerator
        fitted = replace(fitted, accelerator=replace(one, kernel=one.kernel.on_one_device()))
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
    """Which communications of a rank keep their order in a simulation.

    PyTorch runs each process group's communications on a separate stream (NCCL's), in the order in
    which they were issued; compiled programs have all of them in one order.

    Args:
        workload: the workload that runs.
        communication_order: name of the order; None: as in a real run.

    Raises:
        UsageError: no such order.
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
    accelerator: Accelerator | None = None,
    fused_attention: bool = False,
    left: dict[str, int] | None = None,
) -> tuple[WorkloadGraph, ...]:
    """The programs' graphs, op by op: as written, or with attention as the fused kernel.

    Masks that only fused attention needed are dropped.  A compiled program stays as the compiler
    wrote it, and at granularity "op" nothing is fused.  JAX's grouped products are dense ones on
    devices without a kernel for them.

    Args:
        workload: the workload that runs.
        granularity: granularity of the simulation.
        accelerator: the device that it runs on, if grouped products are to be as there.
        fused_attention: whether attention that is written out is fused.
        left: counts (text -> number) attention that stays as written.

    Raises:
        FlintError: there is such attention, and ``left`` is None.
    """
    written = tuple(program.graph for program in workload.programs)
    if accelerator is not None:
        recorded = workload.order == Order.RECORDED
        written = tuple(on_device(graph, accelerator, recorded=recorded) for graph in written)
    if not fused_attention or workload.level != Level.PARTITIONED or granularity == "op":
        return written
    found = []
    for program, graph in zip(workload.programs, written, strict=True):
        # It is known what a recorded run ran.
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
        written: result of ``program_graphs``.
        host: source of the times of the host's lane, for recorded programs.
        launch_overhead: seconds of a launch, if launches are modelled.
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
