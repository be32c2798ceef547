"""Simulating a workload: from its graphs and a system to seconds and bytes.

The idea: programs are brought to a granularity as for execution traces, ranks that behave alike
become one actor, the machine runs all actors together, and the results are added up.

    result = simulate(workload, system="dgx-h100")
    result.step_seconds, result.figures.mfu
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from flint.cost.device_names import system_of_device
from flint.cost.hardware import Accelerator, System
from flint.cost.kernels import Estimator
from flint.cost.reserve import preallocated
from flint.errors import FlintError, UsageError
from flint.graph.communication import UPPER_BOUND
from flint.graph.graph import WorkloadGraph
from flint.host.readable import counted
from flint.passes.attention.fuse import attention_kernels
from flint.passes.what_if import Chosen, parse_passes
from flint.simulation.accounting import last_end, program_result, whole_figures
from flint.simulation.actors import Actors
from flint.simulation.algorithm_notes import algorithm_notes
from flint.simulation.attention_choice import FUSED, check_attention, notes_on_attention
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.group_notes import notes_on_groups
from flint.simulation.launches import OF_OPENED, by_torch, hosted, is_opened, launched
from flint.simulation.machine import Run
from flint.simulation.microbatches import Microbatches
from flint.simulation.preparing import Prepared, order_of, prepare, program_graphs, setting
from flint.simulation.program_memory import program_memory, reserve_beside
from flint.simulation.repeating import SEARCHED
from flint.simulation.replay import Source, replay_of
from flint.simulation.result import ProgramResult, SimulationResult, spread_of_step
from flint.simulation.shortened_run import run_shortened
from flint.simulation.steady_state import Repeat
from flint.simulation.unlisted_types import unlisted_types
from flint.simulation.waiting_forever import check_finished
from flint.workload.programs import Order
from flint.workload.workload import Workload

NAME: Final = "embedded"


def simulate(
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
    microbatches: str | None = None,
) -> SimulationResult:
    """Simulate one step.

    Args:
        workload: the workload that runs; not at the logical level.
        system: the cluster, by name, as a TOML file or loaded.
        granularity: "op", "kernel" or "region", as in execution traces.
        algorithm: how collectives run; by default the cheapest way that the network allows.
        kernels: measured durations as a CSV file (see ``flint.cost.measured``) or as a folder with
            a report of SCALE-Sim (see ``flint.converters.scale_sim``), or any function of a graph
            and a system that gives seconds per node; by default the estimator's.
        estimator: model that times the kernels that were not measured, by name (see
            ``flint.cost.estimators``).
        passes: what-if passes (see ``flint.passes.what_if``), after the granularity's.
        attention: how to time attention that a partitioned program writes out: "as-written", op by
            op, as XLA runs it; "fused", as the kernel that training uses (see
            ``flint.passes.attention``; not at granularity "op"); by default as written, with a
            note if fused kernels would change the step by more than 10 %.
        communication_order: "rank": a rank issues its communications one after another, as in
            execution traces; "communicator": those of each communicator, which share its links;
            by default the second for PyTorch's programs, the first for compiled ones.
        communication: for a recorded step, "measured": communications take as long as in the run,
            and keep only the order of their streams; "modelled": as long as on the system; by
            default the first, unless an ``algorithm`` or an order is given.
        host: for a recorded step, "measured": launches and the host's gaps take as long as in the
            run; "modelled": each launch takes the system's launch overhead; "none": nothing waits
            for the host; by default the first.
        microbatches: "24:512": the step was captured with 24 microbatches but has 512; each further
            one repeats the last one of the steady state.

    Raises:
        UsageError: unknown system, granularity, algorithm, estimator, pass or order, a program that
            is not partitioned, a mesh that does not map to the system, or measured times of a
            workload that has none.
        FlintError: a graph without any work, or ranks wait for each other forever.
    """
    workload.check_partitioned("simulation needs")
    check_attention(attention)
    order = order_of(workload, communication_order)
    modelled = algorithm is not None or communication_order is not None
    replay = replay_of(workload, communication, host, modelled=modelled)
    on = setting(workload.mesh.size, system, algorithm, kernels, estimator)
    fitted = on.system
    chosen = parse_passes(passes)
    overhead = fitted.accelerator.launch_overhead
    left: dict[str, int] = {}
    more = None if microbatches is None else Microbatches.parse(microbatches)
    if more is not None and any(program.timing is not None for program in workload.programs):
        raise UsageError("--microbatches is for captured programs: a profile has those of its run")

    def prepared(written: Sequence[WorkloadGraph], at: str = granularity) -> Prepared:
        return prepare(workload, written, at, chosen, host=replay.host, launch_overhead=overhead)

    def happens(graphs: Sequence[WorkloadGraph]) -> tuple[Actors, Run, list[Repeat]]:
        ranks = (program.ranks.array() for program in workload.programs)
        parts = list(zip(graphs, ranks, strict=True))
        searched = SEARCHED if more is None else 0
        return run_shortened(parts, workload.mesh.size, on.costs, order, replay, searched, more)

    graphs_of = partial(program_graphs, workload, granularity, accelerator=fitted.accelerator)
    written = graphs_of(fused_attention=attention == FUSED, left=left)
    found = prepared(written)
    graphs = found.graphs
    _check_work(workload, graphs)
    everyone, happened, repeated = happens(graphs)
    check_finished(everyone, happened, workload, chosen)
    programs, retries = [], 0
    for number, program in enumerate(workload.programs):
        memory = program_memory(
            program, written[number], found.kernels[number], fitted.accelerator,
            changed=bool(chosen),
        )  # fmt: skip
        retries = max(retries, memory.retries)
        actors = [i for i, info in enumerate(everyone.info) if info.program == number]
        programs.append(
            program_result(number, workload, everyone, happened, repeated, actors, fitted, memory)
        )
    reserve = max(reserve_beside(program, fitted.accelerator) for program in workload.programs)
    elsewhere = _another_device(workload, on.name)
    replayed = replay.kernels == Source.MEASURED
    measured = replayed or bool(workload.options.get("measured"))
    if elsewhere and measured:  # their times say nothing about another device's peak
        programs = [replace(item, figures=replace(item.figures, mfu=math.nan)) for item in programs]
    launch_notes: list[str] = []
    if by_torch(workload, fitted):
        opened = is_opened(workload)
        run = everyone, happened, repeated
        if opened and granularity != OF_OPENED:
            run = happens(prepared(written, OF_OPENED).graphs)
        counts = [
            round(count * (1 - program.graphed))
            for count, program in zip(
                launched(*run, len(programs), opened=opened), workload.programs, strict=True
            )
        ]
        programs, launch_notes = hosted(counts, programs)
    figures = whole_figures([program.figures for program in programs], programs)
    attention_notes = _attention(written)
    if attention is None:
        fused = graphs_of(fused_attention=True, left={})
        if any(one is not other for one, other in zip(written, fused, strict=True)):
            others, other, again = happens(prepared(fused).graphs)
            ticks = last_end(other, again, range(len(others.info)))
            attention_notes = notes_on_attention(figures.step_seconds, ticks / TICKS_PER_SECOND)
    shares = [program.ranks.size / workload.mesh.size for program in workload.programs]
    return SimulationResult(
        system=on.name,
        granularity=granularity,
        engine=NAME,
        communication_order=order,
        ranks=workload.mesh.size,
        behaviours=len(everyone.columns),
        kernels=str(replay.kernels),
        communication=str(replay.communication),
        host=str(replay.host),
        memory_bytes=fitted.accelerator.memory_bytes,
        figures=figures,
        programs=tuple(programs),
        notes=(
            *on.fitting,
            *elsewhere,
            *algorithm_notes(graphs, on.costs.prices, algorithm),
            *(
                f"pass {item} changed nothing" if item in found.idle else f"after pass {item}"
                for item in chosen
            ),
            *attention_notes,
            *notes_on_groups(workload, written),
            *_more_microbatches(more),
            *launch_notes,
            *unlisted_types(graphs, shares, on.costs.prices, figures.step_seconds),
            *(f"{text} ({count} of them)" for text, count in left.items()),
            *_remarks(workload),
            *_retries(retries),
            *_preallocation(workload, fitted.accelerator, figures.peak_memory_bytes),
            *_without_kernels(programs),
            *(on.measured.notes() if on.measured else ()),
        ),
        reserve_bytes=reserve,
        spread=None
        if replayed or (measured and not figures.communication_seconds)
        else spread_of_step(fitted, figures, graphs),
    )


def _attention(graphs: Sequence[WorkloadGraph]) -> list[str]:
    """Notes on attention."""
    made = sum(attention_kernels(graph) for graph in graphs)
    if not made:
        return []
    kernels = f"{counted(made, 'fused kernel')} (loop bodies counted once)"
    return [f"attention is timed as {kernels}, not op by op as written"]


def _more_microbatches(asked: Microbatches | None) -> list[str]:
    """Notes on microbatches that were not captured."""
    if asked is None:
        return []
    return [
        f"the step has {asked.wanted} microbatches: the {asked.captured} that were captured, and "
        f"{asked.wanted - asked.captured} more like those of the steady state (memory, and work "
        f"on the whole batch such as slices of it, are those of {asked.captured})"
    ]


def _without_kernels(programs: Sequence[ProgramResult]) -> list[str]:
    """Notes on ranks that the means leave out."""
    idle = [program for program in programs if not program.figures.compute_seconds > 0]
    if not idle or len(idle) == len(programs):
        return []
    names = ", ".join(program.name for program in idle)
    ranks = counted(sum(program.rank_count for program in idle), "rank")
    return [f"means leave out {ranks} without kernels ({names})"]


def _another_device(workload: Workload, system: str) -> list[str]:
    """Notes if a profile's devices are not those of the system."""
    device = str(workload.options.get("device", ""))
    known = system_of_device(device)
    if not device or known == system:
        return []
    meant = f"--system {known}" if known else "no known system has these devices"
    return [f"the profile is of {device}: peaks and links are those of {system} ({meant})"]


def _retries(count: int) -> list[str]:
    """Notes if memory is so tight that PyTorch's allocator must free segments."""
    if not count:
        return []
    return [
        f"the device is full {counted(count, 'time')} per step: PyTorch's allocator then waits "
        "for the device and frees unused segments (num_alloc_retries); this time is not counted"
    ]


def _preallocation(workload: Workload, accelerator: Accelerator, peak: float) -> list[str]:
    """Notes if JAX must be configured to take more of a GPU than by default."""
    share = preallocated(accelerator)
    needed = peak / accelerator.memory_bytes
    if workload.order == Order.RECORDED or not share < needed <= 1:
        return []
    return [
        f"JAX uses {share:.0%} of a GPU's memory by default: XLA_CLIENT_MEM_FRACTION must be at "
        f"least {math.ceil(needed * 100) / 100:.2f}"
    ]


def _remarks(workload: Workload) -> list[str]:
    """What the reader should know about the programs."""
    bounds = sum(
        not item.exact
        for program in workload.programs
        for item in program.graph.tables.communications
    )
    if not bounds:
        return []
    return [
        f"{bounds} communications have sizes that depend on data: each is counted at {UPPER_BOUND}"
    ]


def _check_work(workload: Workload, graphs: Sequence[WorkloadGraph]) -> None:
    for program, graph in zip(workload.programs, graphs, strict=True):
        blocks = [block for block, _ in graph.walk()]
        costed = any(
            len(b.work_flops) or b.bytes_read.any() or b.bytes_written.any() for b in blocks
        )
        if any(len(block) for block in blocks) and not costed and not graph.tables.communications:
            raise FlintError(
                f"program {program.name}: none of its nodes has work or memory traffic, so there "
                "is nothing to simulate; capture or convert it again"
            )
