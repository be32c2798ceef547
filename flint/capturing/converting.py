"""Records in, a workload out.

The idea: a frontend makes records, the walker turns them into a graph, passes compute the issue
order and split ranks that behave differently.  Nothing here depends on a file format.

    workload = workload_of(walk(module), module, options=WalkOptions(), source={})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from flint.capturing.donation import donations
from flint.graph.allocations import Allocations
from flint.graph.graph import WorkloadGraph
from flint.graph.routing import routing_of
from flint.mesh.mesh import Mesh
from flint.passes.branches import split_by_rank
from flint.passes.copy_insertion import with_copies
from flint.passes.optimizer_phase import mark_optimizer
from flint.passes.order import issue_order
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.records import Module
from flint.stablehlo.walker import Walked
from flint.workload.programs import (
    Call,
    Level,
    Listing,
    Order,
    Program,
    ProgramInput,
    with_communicators,
)
from flint.workload.uneven import uneven_remarks, with_largest_sizes
from flint.workload.workload import Workload


def walk_options(
    *,
    trip_count: int | Mapping[str, int] | None = None,
    branch: int | Mapping[str, int] | None = None,
    reduce_scatter: bool = True,
    drop_barriers: bool = False,
    strict: bool = False,
    loop_lookahead: int | None = 0,
    fuse: bool = False,
    routing: Any = None,
) -> WalkOptions:
    """The walk's options with the names of ``flint.convert``, which documents them."""
    return WalkOptions(
        trip_counts=_by_name(trip_count),
        branches=_by_name(branch),
        reduce_scatter=reduce_scatter,
        drop_barriers=drop_barriers,
        strict=strict,
        lookahead=loop_lookahead,
        fuse=fuse,
        routing=None if routing is None else routing_of(routing),
    )


ONE_DEVICE = "the program is for one device, and simulators need at least two ranks"


def workload_of(
    walked: Walked,
    module: Module,
    *,
    options: WalkOptions,
    source: dict[str, str],
    saved: tuple[bytes, str] | None = None,
    listing: Listing | None = None,
    inputs: tuple[ProgramInput, ...] | None = None,
) -> Workload:
    """The workload of a walked module: ordered, split by rank, verified.

    Args:
        walked: the walk's result.
        module: the records it came from.
        options: the walk's options, for the record.
        source: name and hash of the input.
        saved: the module's bytes and file suffix, kept with the first program.
        listing: makes the same for people to read.
        inputs: what is known about the entry's parameters; by default, what the module says.
    """
    return assembled(
        replace(walked, graph=in_order(module, walked.graph)),
        module,
        options=options,
        source=source,
        saved=saved,
        listing=listing,
        inputs=program_inputs(module, walked.graph) if inputs is None else inputs,
    )


def in_order(module: Module, graph: WorkloadGraph) -> WorkloadGraph:
    """A module's graph in issue order: as recorded, as scheduled by a compiler, or computed."""
    return graph if module.issues or module.scheduled else issue_order(graph)


def assembled(
    walked: Walked,
    module: Module,
    *,
    options: WalkOptions,
    source: dict[str, str],
    inputs: tuple[ProgramInput, ...],
    saved: tuple[bytes, str] | None = None,
    listing: Listing | None = None,
    calls: tuple[Call, ...] = (),
) -> Workload:
    """The workload of a graph in issue order: split by rank, verified.

    Args:
        walked: the graph.
        module: the records that it, or the first part of it, came from.
        options, source, inputs, saved, listing: as of ``workload_of``.
        calls: the programs in sequence whose graphs it joins; empty for a single program.
    """
    world = walked.world
    recorded = bool(module.issues)
    graph = walked.graph if recorded else mark_optimizer(walked.graph)
    # Split after ordering: programs of one module must issue shared communications in one order.
    splits = split_by_rank(graph, world.partitions, world.replicas, world.copies)
    programs = tuple(
        Program(
            name="main" if len(splits) == 1 else f"main_{number}",
            graph=with_input_copies(split.graph, module, inputs),
            ranks=split.ranks,
            inputs=inputs,
            module=saved if number == 0 else None,
            listing=listing if number == 0 else None,
            calls=calls,
            allocations=allocations_of(module, options),
            graphed=graphed(module),
        )
        for number, split in enumerate(splits)
    )
    return of_programs(
        programs,
        walked.mesh,
        options=options,
        source=source,
        warnings=walked.warnings | remarks_of(walked),
        level=level_of(module, walked.per_device),
        order=order_of(module),
    )


def of_programs(
    programs: tuple[Program, ...],
    mesh: Mesh,
    *,
    options: WalkOptions,
    source: dict[str, str],
    warnings: dict[str, int],
    level: Level,
    order: Order,
) -> Workload:
    """The workload of programs, verified over all of them.

    Args:
        programs: they cover every rank once.
        mesh: the device grid.
        options: the walk's options, for the record.
        source: name and hash of the input.
        warnings: remarks made during capturing, text -> count.
        level, order: of the programs.
    """
    programs = with_largest_sizes(with_communicators(programs), mesh.size)
    workload = Workload(
        mesh=mesh,
        programs=programs,
        level=level,
        order=order,
        options={key: _plain(value) for key, value in asdict(options).items()},
        input=source,
        warnings=warnings | uneven_remarks(programs),
    )
    workload.verify()
    return workload


def with_input_copies(
    graph: WorkloadGraph, module: Module, inputs: tuple[ProgramInput, ...]
) -> WorkloadGraph:
    """``graph`` with the copies that a backend makes of inputs that are not donated."""
    if module.optimized or module.scheduled:
        return graph
    return with_copies(graph, {at for at, item in enumerate(inputs) if item.donated < 0})


def level_of(module: Module, per_device: bool) -> Level:
    """The level of a module.

    Args:
        module: op records.
        per_device: whether all shapes are those of one device.
    """
    if module.optimized:
        return Level.OPTIMIZED
    return Level.PARTITIONED if per_device else Level.LOGICAL


def order_of(module: Module) -> Order:
    """Where the issue order of a module's graph comes from."""
    if module.issues:
        return Order.RECORDED
    return Order.COMPILED if module.scheduled else Order.MODELLED


def allocations_of(module: Module, options: WalkOptions) -> Allocations | None:
    """A program's allocations: as recorded, or as of a compiler that opens the kernels."""
    if module.allocations is None or not options.fuse:
        return module.allocations
    return module.allocations.until_last_use()


def graphed(module: Module) -> float:
    """The share of a recorded module's ops that CUDA graphs launch."""
    launched = [issue for issue in module.issues.values() if issue.number >= 0]
    return sum(issue.graphed for issue in launched) / len(launched) if launched else 0.0


def remarks_of(walked: Walked) -> dict[str, int]:
    """What a user should know about the workload as a whole."""
    if walked.world.copies > 1:
        text = (
            f"the program is for {walked.world.devices} devices; the mesh contains {{}} copies "
            "of it"
        )
        return {text.format(walked.world.copies) + ", which do not communicate": 1}
    if walked.mesh.size > 1:
        return {}
    return {ONE_DEVICE: 1}


def program_inputs(module: Module, graph: WorkloadGraph) -> tuple[ProgramInput, ...]:
    """What a module says about its entry parameters.

    Args:
        module: op records.
        graph: the module's graph, which has each rank's part of parameters and outputs.
    """
    donated = donations(module.donated, module.donors, graph)

    def of(values: tuple[str, ...], number: int) -> str:
        return values[number] if number < len(values) else ""

    return tuple(
        ProgramInput(
            type=graph.type_of(number),
            role=of(module.input_roles, number) or "unknown",
            name=of(module.input_names, number),
            donated=donated.get(number, -1),
            sharding=of(module.input_shardings, number),
        )
        for number in range(graph.inputs)
    )


def _by_name(value: int | Mapping[str, int] | None) -> Mapping[str, int]:
    if value is None:
        return {}
    return {"": value} if isinstance(value, int) else dict(value)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
