"""Simulating a workload: from its graphs and a system to seconds and bytes.

The idea: programs are brought to a granularity as for execution traces, ranks that behave alike
become one actor, the machine runs all actors against each other, and what happened is added up.

    result = simulate(workload, system="dgx-h100")
    result.step_seconds, result.figures.mfu
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flint.cost.measured import Estimator
from flint.cost.roofline import rate_table
from flint.cost.systems import System
from flint.errors import FlintError, UsageError
from flint.execution.chains import CommunicationOrder
from flint.execution.forms import bytes_of
from flint.execution.node_types import NodeType
from flint.graph.communication import UPPER_BOUND
from flint.graph.distinct import distinct
from flint.graph.graph import Phase, WorkloadGraph
from flint.graph.partners import partners
from flint.graph.work import Unit
from flint.host.readable import counted
from flint.passes.attention import attention_kernels
from flint.passes.what_if import Chosen, parse_passes
from flint.simulation.actors import Cast, Role, build_cast
from flint.simulation.classes import KERNELS, kernel_classes
from flint.simulation.durations import TICKS_PER_SECOND, Costs
from flint.simulation.loop_shortening import Cut, Repeat, repeats, shorten
from flint.simulation.machine import Run, run
from flint.simulation.memory import Memory, peak_memory
from flint.simulation.preparing import order_of, prepare, setting
from flint.simulation.result import ClassRow, Figures, ProgramResult, SimulationResult
from flint.simulation.spans import overlap, parts
from flint.workload.programs import Level
from flint.workload.workload import Workload

Ints = NDArray[np.int64]

NAME: Final = "embedded"


def simulate(
    workload: Workload,
    system: str | System = "dgx-h100",
    *,
    granularity: str = "kernel",
    algorithm: str | None = None,
    kernels: Estimator | str | Path | None = None,
    passes: Iterable[str | Chosen] = (),
    fused_attention: bool = True,
    communication_order: str | None = None,
) -> SimulationResult:
    """How long one step takes.

    Args:
        workload: what runs; not at the logical level.
        system: the cluster, by name, as a TOML file or loaded.
        granularity: "op", "kernel" or "region", as in execution traces.
        algorithm: how collectives run; by default the cheapest way that the network allows.
        kernels: measured durations as a CSV file (see ``flint.cost.measured``), or any function of
            a graph and a system that gives seconds per node; by default ``flint.cost.kernels``.
        passes: what-if passes (see ``flint.passes.what_if``), after the granularity's.
        fused_attention: attention that a partitioned program spells out runs as the fused kernel
            that training uses (see ``flint.passes.attention``); not at granularity "op".
        communication_order: "rank": a rank issues its communications one after another, as in
            execution traces; "communicator": those of each communicator, which share its links;
            by default the second for what PyTorch issued, the first for compiled programs.

    Raises:
        UsageError: unknown system, granularity, algorithm, pass or order, a program that is not
            partitioned, a mesh that does not map on the system.
        FlintError: a graph without any work, ranks that wait for each other for ever.
    """
    if workload.level == Level.LOGICAL:
        raise UsageError(
            "the program is not partitioned (its shapes are global, its inputs carry shardings): "
            "simulating needs the per-device program that XLA's partitioner makes of it"
        )
    order = order_of(workload, communication_order)
    on = setting(workload.mesh.size, system, algorithm, kernels)
    fitted = on.system
    chosen = parse_passes(passes)
    prepared = prepare(workload, granularity, chosen, fused_attention=fused_attention)
    graphs = prepared.graphs
    _check_work(workload, graphs)
    ranks = [program.ranks.array() for program in workload.programs]
    cast, happened, repeated = run_shortened(
        list(zip(graphs, ranks, strict=True)), workload.mesh.size, on.costs, order
    )
    _check_finished(cast, happened, workload)
    programs = []
    for number, program in enumerate(workload.programs):
        memory = peak_memory(prepared.kernels[number], program.inputs)
        actors = [i for i, role in enumerate(cast.roles) if role.program == number]
        programs.append(
            _program(number, workload, cast, happened, repeated, actors, fitted, memory)
        )
    return SimulationResult(
        system=on.name,
        granularity=granularity,
        engine=NAME,
        communication_order=order,
        ranks=workload.mesh.size,
        behaviours=len(cast.actors),
        memory_bytes=fitted.accelerator.memory_bytes,
        figures=_together([program.figures for program in programs], programs),
        programs=tuple(programs),
        notes=(
            *on.fitting,
            *(
                f"pass {item} changed nothing" if item in prepared.idle else f"after pass {item}"
                for item in chosen
            ),
            *_attention(prepared.written),
            *(f"{text} ({count} of them)" for text, count in prepared.left.items()),
            *_remarks(workload),
            *(on.measured.notes() if on.measured else ()),
        ),
    )


def _attention(graphs: Sequence[WorkloadGraph]) -> list[str]:
    """What became of attention."""
    made = sum(attention_kernels(graph) for graph in graphs)
    if not made:
        return []
    kernels = f"{counted(made, 'fused kernel')} (loop bodies counted once)"
    return [f"attention is timed as {kernels}, not op by op as written"]


def _remarks(workload: Workload) -> list[str]:
    """What the reader should know of the programs."""
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


def run_shortened(
    programs: list[tuple[WorkloadGraph, Ints]],
    world: int,
    costs: Costs,
    order: CommunicationOrder = CommunicationOrder.RANK,
) -> tuple[Cast, Run, list[Repeat]]:
    """Run a workload, long loops by a few of their iterations where that is the same.

    Several programs are run in full: their loops wait for one another.  So is what has an order for
    each communicator: its iterations need not be alike, and recorded programs have no loops.

    Args:
        programs, world, order: as of ``build_cast``.
        costs: on a system.

    Returns:
        The actors, what happened, and which parts of it happen again and again.
    """
    keep: frozenset[int] = frozenset()
    while True:
        cuts: list[Cut] = []
        shortened = programs
        if len(programs) == 1 and order == CommunicationOrder.RANK:
            graph, cuts = shorten(programs[0][0], keep)
            shortened = [(graph, programs[0][1])]
        cast = build_cast(shortened, world, costs.ticks, costs=costs.columns, order=order)
        beside = costs.system.accelerator.kernel.beside_communication
        happened = run(cast.actors, cast.members, beside)
        if happened.stuck:
            return cast, happened, []
        found = repeats(cuts, cast, happened)
        restless = {cut.node for cut, item in zip(cuts, found, strict=True) if item is None}
        if not restless:
            return cast, happened, [item for item in found if item is not None]
        keep |= restless


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


def _check_finished(cast: Cast, happened: Run, workload: Workload) -> None:
    if not happened.stuck:
        return
    actor, node = happened.stuck[0]
    role = cast.roles[actor]
    graph, index, iteration = role.unrolled.locate(int(role.emission.instance[node]))
    source = graph[index].source
    where = f" at {source.file}:{source.line}" if source.file else ""
    raise FlintError(
        f"rank {role.rank} of program {workload.programs[role.program].name} waits for ever at "
        f"{graph[index].op} (node {index}, iteration {iteration}{where}): its partners never "
        "arrive"
    )


def _program(
    number: int,
    workload: Workload,
    cast: Cast,
    happened: Run,
    repeated: list[Repeat],
    actors: list[int],
    system: System,
    memory: Memory,
) -> ProgramResult:
    program = workload.programs[number]
    share = {actor: cast.roles[actor].ranks / program.ranks.size for actor in actors}
    step = max((_over(happened.end[actor], repeated) for actor in actors), default=0)
    times: dict[str, float] = defaultdict(float)
    rows: dict[tuple[str, bool], np.ndarray] = defaultdict(lambda: np.zeros(5))
    flops = model_flops = 0
    ideal = 0.0
    for actor in actors:
        role = cast.roles[actor]
        spent = _Spent(role, happened, actor, repeated)
        for key, value in (
            ("compute", spent.compute),
            ("communication", spent.communication),
            ("exposed", spent.exposed_ticks),
            ("idle", step - spent.compute - spent.exposed_ticks),
        ):
            times[key] += share[actor] * value / TICKS_PER_SECOND
        for key_row, values in spent.rows(workload).items():
            rows[key_row] += share[actor] * values
        work = _work(role, spent.times, system)
        flops += role.ranks * work[0]
        model_flops += role.ranks * work[1]
        ideal += share[actor] * work[2]
    seconds = step / TICKS_PER_SECOND
    figures = Figures(
        step_seconds=seconds,
        compute_seconds=times["compute"],
        communication_seconds=times["communication"],
        exposed_communication_seconds=times["exposed"],
        idle_seconds=times["idle"],
        peak_memory_bytes=memory.bytes,
        flops=flops,
        model_flops=model_flops,
        mfu=ideal / seconds if seconds else 0.0,
    )
    return ProgramResult(
        name=program.name,
        ranks=str(program.ranks),
        rank_count=program.ranks.size,
        figures=figures,
        memory={**memory.inputs, "temporaries": memory.peak},
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


def _over(end: Ints, repeated: list[Repeat]) -> int:
    """When an actor is done, with everything that happens again."""
    last = int(end.max(initial=0))
    again = (item.times * (item.end - item.start) for item in repeated if item.start < last)
    return last + sum(again)


def _together(figures: list[Figures], programs: list[ProgramResult]) -> Figures:
    """The workload's figures: means by number of ranks, sums and maxima where they are."""
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
        peak_memory_bytes=max(item.peak_memory_bytes for item in figures),
        flops=sum(item.flops for item in figures),
        model_flops=sum(item.model_flops for item in figures),
        mfu=ideal / step if step else 0.0,
    )


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

    def __init__(self, role: Role, happened: Run, actor: int, repeated: list[Repeat]) -> None:
        self.role = role
        start, end = happened.start[actor], happened.end[actor]
        types = role.emission.type
        self.computes = types == NodeType.COMP
        self.talks = (types == NodeType.COLL) | (types == NodeType.SEND)
        self.ticks: NDArray[Any] = np.where(types == NodeType.RECV, 0, end - start)
        self.times = np.ones(len(types), np.int64)
        self.spent: NDArray[Any] = self.ticks.copy()
        for item in repeated:
            self.times[(end > item.start) & (end <= item.end)] += item.times
            # Not ``ticks`` by ``times``: what crosses the begin of what happens again may have run
            # more slowly before it than it does each time again.
            within = np.clip(end, item.start, item.end) - np.clip(start, item.start, item.end)
            self.spent += item.times * np.where(self.ticks > 0, within, 0)
        self.compute = int(self.spent[self.computes].sum())
        self.communication = int(self.spent[self.talks].sum())
        order = np.argsort(start[self.computes], kind="stable")
        begins, ends = start[self.computes][order], end[self.computes][order]
        before = np.concatenate([[0], np.cumsum(ends - begins)])

        def computed_until(time: Ints) -> Ints:
            """Ticks of compute before each time: kernels run one at a time."""
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
            self.exposed = self.exposed + item.times * uncovered(item.start, item.end)
        self.exposed_ticks = int(self.exposed.sum())
        if overlap(start[self.talks], end[self.talks]):
            self._share(start, end)

    def _share(self, start: Ints, end: Ints) -> None:
        """Give each communication its part of the time in which several run."""
        talks, kernels = self.talks, (start[self.computes], end[self.computes])
        self.spent = self.spent.astype(np.float64)
        self.spent[talks] = parts(start[talks], end[talks])
        self.exposed = np.zeros(len(start))
        self.exposed[talks] = parts(start[talks], end[talks], kernels)
        self.communication = round(float(self.spent[talks].sum()))
        self.exposed_ticks = round(float(self.exposed.sum()))

    def rows(self, workload: Workload) -> dict[tuple[str, bool], NDArray[np.float64]]:
        """Class -> nodes, ticks, exposed ticks, FLOPs, bytes."""
        unrolled, emission = self.role.unrolled, self.role.emission
        template = unrolled.template[emission.instance]
        detail = unrolled.detail[emission.instance]
        table = unrolled.graphs[0].tables.communications
        kinds = np.concatenate([kernel_classes(graph) for graph in unrolled.graphs])
        flops = np.concatenate([graph.flops_by_node() for graph in unrolled.graphs])
        moved = unrolled.column("bytes_read") + unrolled.column("bytes_written")
        names = [*((name, False) for name in KERNELS)]
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
        counted = (emission.type != NodeType.RECV) & ~(self.computes & talks & (self.ticks == 0))
        columns: list[NDArray[Any]] = [
            counted * self.times,
            self.spent,
            self.exposed,
            np.where(talks, 0.0, flops[template]) * self.times,
            np.where(talks, np.where(self.talks, sent[detail], 0.0), moved[template]) * self.times,
        ]
        sums = [np.bincount(number, weights=column, minlength=len(numbers)) for column in columns]
        return {name: np.array([s[i] for s in sums]) for name, i in numbers.items()}


def _work(role: Role, executed: Ints, system: System) -> tuple[int, int, float]:
    """FLOPs, model FLOPs and the seconds that these would take at the peaks, of one rank."""
    unrolled = role.unrolled
    computes = role.emission.type == NodeType.COMP
    times = np.zeros(int(unrolled.start[-1]), np.int64)
    np.add.at(times, unrolled.template[role.emission.instance[computes]], executed[computes])
    rates = rate_table(system.accelerator)
    flops = model = 0
    ideal = 0.0
    for number, graph in enumerate(unrolled.graphs):
        runs = times[unrolled.start[number] : unrolled.start[number + 1]]
        owner = np.repeat(np.arange(len(graph)), np.diff(graph.work_ptr))
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
