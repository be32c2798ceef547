"""Adding up the results: from the machine's ticks to a program's and a workload's figures.

The idea: every actor's ticks are counted once for each rank that it stands for; the part of a
shortened loop that repeats is counted as often as it repeats.

    program_result(0, workload, everyone, happened, repeated, [0], system, memory).figures
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.cost.classes import SHOWN, shown_classes
from flint.cost.hardware import System
from flint.cost.roofline import rate_table
from flint.execution.node_types import NodeType
from flint.graph.graph import Ints, Phase
from flint.graph.stated import UNKNOWN, unstated_traffic, unstated_values, unstated_work
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry
from flint.simulation.actors import ActorInfo, Actors
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.machine import Run
from flint.simulation.memory import Memory
from flint.simulation.result import ClassRow, Figures, ProgramResult
from flint.simulation.spent_time import Spent
from flint.simulation.steady_state import Repeat
from flint.workload.programs import EXECUTION_TRACES, PROFILED_SEQUENCE
from flint.workload.workload import Workload

#: Classes of kernels that may hold matrix products.
_MAY_MULTIPLY = {"matmul", "attention", "other"}


def program_result(
    number: int,
    workload: Workload,
    everyone: Actors,
    happened: Run,
    repeated: list[Repeat],
    actors: list[int],
    system: System,
    memory: Memory,
) -> ProgramResult:
    """One program's figures and classes.

    Args:
        number: the program's number in the workload.
        workload: the simulated workload.
        everyone: all actors.
        happened: when everything happened.
        repeated: the part that happens again.
        actors: the program's actors.
        system: the system that it ran on.
        memory: the memory that the program needs on one rank.
    """
    program = workload.programs[number]
    share = {actor: everyone.info[actor].ranks / program.ranks.size for actor in actors}
    step = last_end(happened, repeated, actors)
    times: dict[str, float] = defaultdict(float)
    rows: dict[tuple[str, bool], np.ndarray] = defaultdict(lambda: np.zeros(5))
    flops: float = 0
    model_flops: float = 0
    ideal = 0.0
    for actor in actors:
        info = everyone.info[actor]
        spent = Spent(info, happened, actor, repeated)
        for key, value in (
            ("compute", spent.compute),
            ("communication", spent.communication),
            ("exposed", spent.exposed_ticks),
            ("idle", step - spent.compute - spent.exposed_ticks),
        ):
            times[key] += share[actor] * value / TICKS_PER_SECOND
        for key_row, values in spent.rows(workload).items():
            rows[key_row] += share[actor] * values
        work = _work(info, spent.times, system)
        flops += info.ranks * work[0]
        model_flops += info.ranks * work[1]
        ideal += share[actor] * work[2]
    seconds = step / TICKS_PER_SECOND
    blocks = [block for block, _ in program.graph.walk()]
    unstated = {SHOWN[i] for block in blocks for i in shown_classes(block)[unstated_work(block)]}
    flops = UNKNOWN if unstated else flops
    if unstated & _MAY_MULTIPLY:
        model_flops = ideal = UNKNOWN
    memory_known = (
        not {PROFILED_SEQUENCE, EXECUTION_TRACES} & workload.options.keys()
        and not unstated_values(program.graph)
        and not any(unstated_traffic(block).any() for block in blocks)
    )
    if not program.traced:
        flops = model_flops = ideal = times["compute"] = times["idle"] = times["exposed"] = UNKNOWN
        memory_known = False
    figures = Figures(
        step_seconds=seconds,
        compute_seconds=times["compute"],
        communication_seconds=times["communication"],
        exposed_communication_seconds=times["exposed"],
        idle_seconds=times["idle"],
        peak_memory_bytes=memory.bytes if memory_known else UNKNOWN,
        flops=flops,
        model_flops=model_flops,
        mfu=ideal / seconds if seconds else 0.0 * ideal,  # unknown stays unknown
    )
    return ProgramResult(
        name=program.name,
        ranks=str(program.ranks),
        rank_count=program.ranks.size,
        figures=figures,
        memory=memory.parts() if memory_known else {},
        host_memory_bytes=memory.host,
        classes=tuple(
            sorted(
                (
                    ClassRow(name, communicates, float(v[0]), float(v[1] / TICKS_PER_SECOND),
                             float(v[2] / TICKS_PER_SECOND), float(v[3]), float(v[4]))
                    for (name, communicates), v in rows.items()
                    if v[0]
                ),
                key=lambda row: -row.seconds,
            )
        ),
    )  # fmt: skip


def last_end(happened: Run, repeated: list[Repeat], actors: Iterable[int]) -> int:
    """When the last of some actors ends, in ticks, including everything that happens again."""

    def end_of(actor: int) -> int:
        last = int(happened.end[actor].max(initial=0))
        again = (
            item.times * (item.end - item.start)
            for item in repeated
            if actor in item.early and item.start < last
        )
        return last + sum(again)

    return max(map(end_of, actors), default=0)


def whole_figures(figures: list[Figures], programs: list[ProgramResult]) -> Figures:
    """The workload's figures: means weighted by number of ranks, and sums or maxima where needed.

    Ranks that run no kernels, because they were not traced or have nothing to do, are left out.
    """
    busy = [i for i, item in enumerate(figures) if item.compute_seconds > 0]
    busy = busy or list(range(len(figures)))
    figures, programs = [figures[i] for i in busy], [programs[i] for i in busy]
    ranks = sum(program.rank_count for program in programs)
    step = max(item.step_seconds for item in figures)

    def mean(values: list[float]) -> float:
        weighted = zip(values, programs, strict=True)
        return sum(value * program.rank_count for value, program in weighted) / ranks

    exposed = mean([item.exposed_communication_seconds for item in figures])
    # Ranks of a program that has ended wait for the others.
    idle = mean([item.idle_seconds + step - item.step_seconds for item in figures])
    ideal = mean([item.mfu * item.step_seconds for item in figures])
    return Figures(
        step_seconds=step,
        compute_seconds=mean([item.compute_seconds for item in figures]),
        communication_seconds=mean([item.communication_seconds for item in figures]),
        exposed_communication_seconds=exposed,
        idle_seconds=idle,
        peak_memory_bytes=_largest([item.peak_memory_bytes for item in figures]),
        flops=sum(item.flops for item in figures),
        model_flops=sum(item.model_flops for item in figures),
        mfu=ideal / step if step else 0.0,
    )


def _largest(values: list[float]) -> float:
    """The maximum; unknown if any value is."""
    return UNKNOWN if any(map(math.isnan, values)) else max(values)


def _work(info: ActorInfo, executed: NDArray[Any], system: System) -> tuple[int, int, float]:
    """FLOPs, model FLOPs and the seconds that these would take at the peaks, of one rank."""
    unrolled = info.unrolled
    computes = info.emission.type == NodeType.COMP
    times = np.zeros(int(unrolled.start[-1]), executed.dtype)
    np.add.at(times, unrolled.template[info.emission.instance[computes]], executed[computes])
    rates = rate_table(system.accelerator)
    flops = model = 0
    ideal = 0.0
    for number, graph in enumerate(unrolled.graphs):
        runs = times[unrolled.start[number] : unrolled.start[number + 1]]
        owner = row_of_entry(graph.work_ptr)
        phase = np.array([int(source.phase) for source in graph.tables.sources] or [0])[
            graph.source
        ]
        products = (graph.work_unit == Unit.MATMUL) & (phase[owner] != Phase.RECOMPUTE)
        flops += _product(graph.flops_by_node(), runs)
        done = graph.work_flops[products] * runs[owner[products]].astype(np.float64)
        model += _product(graph.work_flops[products], runs[owner[products]])
        rate = rates[graph.work_unit[products], graph.work_dtype[products]]
        ideal += float((done / rate).sum())
    return flops, model, ideal


def _product(each: Ints, times: Ints) -> int:
    """The exact sum of ``each * times``, which passes 2**63 for large steps."""
    some = np.flatnonzero((each != 0) & (times != 0))
    pairs = zip(each[some].tolist(), times[some].tolist(), strict=True)
    return sum(a * b for a, b in pairs)
