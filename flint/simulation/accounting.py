"""Adding up what happened: from the machine's ticks to a program's and a workload's figures.

The idea: every actor's ticks are counted once for each rank that it stands for; what a shortened
loop left out is counted as often as it happens again.

    program_result(0, workload, everyone, happened, repeated, [0], system, memory).figures
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.cost.classes import FINE, KERNELS, fine_classes, kernel_classes
from flint.cost.hardware import System
from flint.cost.roofline import rate_table
from flint.execution.forms import bytes_of
from flint.execution.node_types import NodeType
from flint.graph.distinct import distinct
from flint.graph.graph import Ints, Phase
from flint.graph.partners import partners
from flint.graph.stated import UNKNOWN, unstated_traffic, unstated_values, unstated_work
from flint.graph.work import Unit
from flint.mesh.ragged import row_of_entry
from flint.passes.host_lane import HOST, on_host
from flint.simulation.actors import ActorInfo, Actors
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.machine import Run
from flint.simulation.memory import Memory
from flint.simulation.result import ClassRow, Figures, ProgramResult
from flint.simulation.spans import Floats, Spans, overlap, parts, union
from flint.simulation.steady_state import Repeat
from flint.workload.workload import Workload

#: What copies between the device's memory and the host's are called.
COPIES = {NodeType.MEM_STORE: "device to host", NodeType.MEM_LOAD: "host to device"}
#: Sums below this have room in 64 bits, with a bit to spare for what is not repeated.
_WORD = 2**62
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
        number: of the program in the workload.
        workload: what ran.
        everyone: all actors.
        happened: when everything happened.
        repeated: what of it happens again.
        actors: those of the program.
        system: what it ran on.
        memory: what the program needs on one rank.
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
        spent = _Spent(info, happened, actor, repeated)
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
    unstated = {KERNELS[i] for block in blocks for i in kernel_classes(block)[unstated_work(block)]}
    flops = UNKNOWN if unstated else flops
    if unstated & _MAY_MULTIPLY:
        model_flops = ideal = UNKNOWN
    memory_known = not unstated_values(program.graph) and not any(
        unstated_traffic(block).any() for block in blocks
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
    """When the last of some actors is done, in ticks, with everything that happens again."""

    def end_of(actor: int) -> int:
        last = int(happened.end[actor].max(initial=0))
        again = (item.times * (item.end - item.start) for item in repeated if item.start < last)
        return last + sum(again)

    return max(map(end_of, actors), default=0)


def whole_figures(figures: list[Figures], programs: list[ProgramResult]) -> Figures:
    """The workload's figures: means by number of ranks, sums and maxima where they are.

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
    # Ranks of a program that is over wait for the others.
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
    """The maximum, unknown where one of them is."""
    return UNKNOWN if any(map(math.isnan, values)) else max(values)


class _Spent:
    """What one actor's time went into.

    Attributes:
        times: how often each node runs, shape [nodes].
        ticks: how long each takes the first time, 0 for RECVs, shape [nodes].
        spent: ticks of each node, whenever it runs; of communications that run at once each has an
            equal part, shape [nodes].
        compute, communication, exposed_ticks: ticks.
        exposed: ticks of each node that no kernel covers, whenever it runs; 0 for kernels, shape
            [nodes].  Of communications that run at once each has an equal part.
    """

    def __init__(self, info: ActorInfo, happened: Run, actor: int, repeated: list[Repeat]) -> None:
        self.info = info
        start, end = happened.start[actor], happened.end[actor]
        types = info.emission.type
        template = info.unrolled.template[info.emission.instance]
        host = np.concatenate([on_host(graph) for graph in info.unrolled.graphs])[template]
        self.host: NDArray[np.bool_] = host
        self.computes = (types == NodeType.COMP) & ~host
        self.talks = (types == NodeType.COLL) | (types == NodeType.SEND)
        self.ticks: NDArray[Any] = np.where(types == NodeType.RECV, 0, end - start)
        exact = _exact(repeated, len(types))
        self.times: NDArray[Any] = np.ones(len(types), exact)
        self.spent: NDArray[Any] = self.ticks.astype(exact)
        for item in repeated:
            self.times[item.nodes(actor, end)] += item.times
            # Not ``ticks`` by ``times``: what crosses the begin of what happens again may have run
            # more slowly before it than it does each time again.
            within = np.clip(end, item.start, item.end) - np.clip(start, item.start, item.end)
            self.spent += item.times * np.where(self.ticks > 0, within, 0).astype(exact)
        self.communication = int(self.spent[self.talks].sum())
        order = np.argsort(start[self.computes], kind="stable")
        begins, ends = start[self.computes][order], end[self.computes][order]
        if overlap(begins, ends):  # of several streams: each has its part
            self.spent = self.spent.astype(np.float64)
            self.spent[self.computes] = _parts(
                start[self.computes], end[self.computes], None, repeated
            )
            begins, ends = union(begins, ends)
        self.compute = round(self.spent[self.computes].sum())
        before = np.concatenate([[0], np.cumsum(ends - begins)])

        def computed_until(time: Ints) -> Ints:
            """Ticks of compute before each time."""
            if not len(ends):
                return np.zeros_like(time)
            index = np.searchsorted(begins, time, side="right")
            ahead: Ints = np.where(index > 0, np.maximum(ends[index - 1] - time, 0), 0)
            return before[index] - ahead

        def uncovered(low: int, high: int) -> Ints:
            """Ticks of each node in ``low .. high`` without compute."""
            begin, stop = np.clip(start, low, high), np.clip(end, low, high)
            bare = (stop - begin) - (computed_until(stop) - computed_until(begin))
            return np.where(self.talks, bare, 0)

        self.exposed: NDArray[Any] = uncovered(0, int(end.max(initial=0)))
        for item in repeated:
            again = uncovered(item.start, item.end).astype(exact)
            self.exposed = self.exposed + item.times * again
        self.exposed_ticks = int(self.exposed.sum())
        if overlap(start[self.talks], end[self.talks]):
            self._share(start, end, repeated)

    def _share(self, start: Ints, end: Ints, repeated: list[Repeat]) -> None:
        """Give each communication its part of the time in which several run."""
        talks, kernels = self.talks, (start[self.computes], end[self.computes])
        self.spent = self.spent.astype(np.float64)
        self.spent[talks] = _parts(start[talks], end[talks], None, repeated)
        self.exposed = np.zeros(len(start))
        self.exposed[talks] = _parts(start[talks], end[talks], kernels, repeated)
        self.communication = round(float(self.spent[talks].sum()))
        self.exposed_ticks = round(float(self.exposed.sum()))

    def rows(self, workload: Workload) -> dict[tuple[str, bool], NDArray[np.float64]]:
        """Class -> nodes, ticks, exposed ticks, FLOPs, bytes."""
        unrolled, emission = self.info.unrolled, self.info.emission
        template = unrolled.template[emission.instance]
        detail = unrolled.detail[emission.instance]
        table = unrolled.graphs[0].tables.communications
        kinds = np.concatenate([fine_classes(graph) for graph in unrolled.graphs])
        flops = np.concatenate([graph.flops_by_node() for graph in unrolled.graphs])
        moved = unrolled.column("bytes_read") + unrolled.column("bytes_written")
        names: list[tuple[str, bool]] = [(name, False) for name in (*FINE, HOST, *COPIES.values())]
        numbers = {name: number for number, name in enumerate(names)}
        of_detail = np.zeros(len(table) + 1, np.int64)
        sent = np.zeros(len(table) + 1, np.int64)
        known: dict[tuple[str, int], int] = {}
        for index in distinct(detail[detail >= 0]).tolist():
            item = table[index]
            place = (item.kind, id(item.groups or item.permutation))
            if place not in known:
                name = (f"{item.kind} over {partners(item, workload.mesh)}", True)
                known[place] = numbers.setdefault(name, len(numbers))
            of_detail[index] = known[place]
            sent[index] = bytes_of(item)
        talks = detail >= 0
        number = np.where(talks, of_detail[detail], kinds[template])
        number[self.host] = numbers[HOST, False]
        for kind, text in COPIES.items():
            number[emission.type == kind] = numbers[text, False]
        copies = np.isin(emission.type, list(COPIES))  # what is read is what is written
        counted = (emission.type != NodeType.RECV) & ~(self.computes & talks & (self.ticks == 0))
        unstated = np.concatenate([unstated_work(graph) for graph in unrolled.graphs])
        flops = np.where(unstated, UNKNOWN, flops)
        unstated = np.concatenate([unstated_traffic(graph) for graph in unrolled.graphs])
        moved = np.where(unstated, UNKNOWN, moved)
        columns: list[NDArray[Any]] = [
            counted * self.times,
            self.spent,
            self.exposed,
            np.where(talks, 0.0, flops[template]) * self.times,
            np.where(talks, np.where(self.talks, sent[detail], 0.0), moved[template])
            / np.where(copies, 2, 1)
            * self.times,
        ]
        sums = [
            np.bincount(number, weights=column.astype(np.float64), minlength=len(numbers))
            for column in columns
        ]
        return {name: np.array([s[i] for s in sums]) for name, i in numbers.items()}


def _parts(start: Ints, end: Ints, covers: Spans | None, repeated: list[Repeat]) -> Floats:
    """``parts`` of everything, with what happens again."""
    found = parts(start, end, covers)
    for item in repeated:
        low, high = item.start, item.end
        within = covers and (np.clip(covers[0], low, high), np.clip(covers[1], low, high))
        again = parts(np.clip(start, low, high), np.clip(end, low, high), within)
        found = found + item.times * again
    return found


def _exact(repeated: list[Repeat], nodes: int) -> Any:
    """The type that holds sums over nodes exactly: Python's integers beyond 64 bits."""
    most = sum(item.times * (item.end - item.start + 1) for item in repeated)
    return np.int64 if most * nodes < _WORD else object


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
