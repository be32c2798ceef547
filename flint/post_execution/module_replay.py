"""Programs of a compiled module, one per traced device, with the times of its run.

The idea: the nodes of one graph get the times of each device's executions.  From there on a device
is a rank like any other (``timings``): a collective ends for all its members when it does for the
first, and what a node's dependencies do not explain is its launch or its delay.  Nodes that were
not executed by themselves take no time.  Ranks of hosts that were not traced run what a traced
rank ran.

    programs = replayed_programs(workload.programs, owner, times, warnings)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from flint.errors import FlintError
from flint.graph.graph import EdgeKind, Ints, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import pointer, row_of_entry
from flint.mesh.ranks import from_mask
from flint.passes.host_lane import PRELUDE
from flint.passes.rematerialize import FUSIBLE
from flint.post_execution.exchanges import Exchange
from flint.post_execution.instruction_nodes import InstructionNodes, instruction_nodes
from flint.post_execution.load_rank import Ran
from flint.post_execution.meetings import meet
from flint.post_execution.module_times import DeviceRun, ModuleTimes
from flint.post_execution.node_work import with_known_work, with_nanoseconds
from flint.post_execution.timings import clocks_of, timings_of, together
from flint.post_execution.units import NO_STREAM, Units
from flint.workload.programs import Program, with_communicators

#: Nanoseconds by which the rounded end of an event may be after the begin of the next.
_ROUNDED = 2
#: The device of profiles of hosts, whose ops run side by side.
_HOST = "CPU"
MIRRORS = "ranks without a profile: each runs what a profiled rank ran"
OTHER_COUNT = "executions of instructions that ran more or less often than in the program: left out"


def replayed_programs(
    programs: Sequence[Program],
    owner: Mapping[str, Sequence[str]],
    times: ModuleTimes,
    unknown: Collection[str],
    warnings: dict[str, int],
) -> tuple[Program, ...]:
    """A program per traced rank.

    Args:
        programs: what the ranks run.
        owner: per program, for each of its graph's sources the executed instruction that it is part
            of ("": none).
        times: the profile.
        unknown: ops whose FLOPs are not known if the programs have none for them.
        warnings: notes are added here.

    Raises:
        FlintError: no instruction has a time, or the ranks' programs do not match.
    """
    runs = {run.rank: run for run in times.runs}
    world = programs[0].ranks.world
    mirrored = _mirrored(programs, runs, world)
    if world > len(runs):
        warnings[MIRRORS] = world - len(runs)
    ran: dict[int, Ran] = {}
    bases: dict[int, tuple[Program, InstructionNodes]] = {}
    for program in programs:
        nodes = instruction_nodes(program.graph, owner[program.name], times.executed)
        for rank in program.ranks.array().tolist():
            if rank in runs:
                units = _units(nodes, runs[rank], times.path, warnings)
                ran[rank] = Ran(units, None, _exchanges(nodes.graph, rank))
                bases[rank] = program, nodes
    ran = dict(sorted(ran.items()))
    warnings |= _lost(times, {name for _, nodes in bases.values() for name in nodes.of})
    if not any(item.units.duration.any() for item in ran.values()):
        raise FlintError(f"{times.path}: no instruction of the program has a time in the trace")
    meetings = meet({rank: [e for e in item.exchanges if e] for rank, item in ran.items()})
    clocks = clocks_of(ran, meetings, {rank: run.clock for rank, run in runs.items()})
    ran = together(ran, meetings, clocks)
    ran, ends = _sent(ran, {rank: bases[rank][1].graph for rank in ran}, mirrored, clocks)
    timings = timings_of(ran, clocks)
    made = []
    for number, (rank, item) in enumerate(ran.items()):
        program, nodes = bases[rank]
        zero = int((item.units.start - timings[rank].start)[0])
        over = int(runs[rank].end.max()) - zero
        start, end = _with_silent(nodes.graph, item.units, ends[rank], zero)
        prelude = 0 if times.device == _HOST else PRELUDE
        graph = with_known_work(_in_streams(nodes.graph, item.units, prelude), unknown)
        made.append(
            replace(
                program,
                name=f"rank_{rank}",
                graph=with_nanoseconds(graph, item.units.duration),
                ranks=from_mask(mirrored == rank),
                module=program.module if number == 0 else None,
                listing=program.listing if number == 0 else None,
                timing=replace(timings[rank], start=start - zero, end=end - zero, over=over),
            )
        )
    return with_communicators(tuple(made))


def _mirrored(programs: Sequence[Program], runs: Mapping[int, DeviceRun], world: int) -> Ints:
    """The traced rank whose times each rank has: itself, or one that runs the same program.

    Raises:
        FlintError: none of the ranks that run a program was traced.
    """
    found = np.arange(world)
    for program in programs:
        ranks = program.ranks.array()
        traced = np.array([rank for rank in ranks.tolist() if rank in runs], np.int64)
        if not len(traced):
            raise FlintError(
                f"none of the ranks that run {program.name} ({len(ranks):,} of {world:,}, "
                f"the first is {ranks[0]}) is in the profile: profile one of them as well"
            )
        others = ranks[~np.isin(ranks, traced)]
        found[others] = traced[np.arange(len(others)) % len(traced)]
    return found


def _units(nodes: InstructionNodes, run: DeviceRun, path: str, warnings: dict[str, int]) -> Units:
    """The nodes of a rank with the times of its run; those that did not run take none."""
    graph = nodes.graph
    start, end, duration, launch, stream = (np.full(len(graph), -1, np.int64) for _ in range(5))
    executions: dict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(run.names):
        executions[name].append(number)
    for name, events in executions.items():
        if name not in nodes.of:
            continue
        place = nodes.for_executions(name, len(events))
        if not len(place) or len(events) % len(place):
            warnings[OTHER_COUNT] = warnings.get(OTHER_COUNT, 0) + abs(len(place) - len(events))
        # An op may run one kernel several times: then each of its nodes takes as many events.
        each, rest = divmod(len(events), max(1, len(place)))
        each = each if each and not rest else 1
        count = min(len(place), len(events))
        at, event = place[:count], np.array(events[: count * each]).reshape(count, each)
        start[at], end[at] = run.start[event[:, 0]], run.end[event].max(axis=1)
        duration[at], launch[at] = run.duration[event].sum(axis=1), run.launch[event[:, 0]]
        stream[at] = run.stream[event[:, 0]]
    talks = graph.kind == NodeKind.COMMUNICATION
    duration = np.where(talks & (start >= 0), end - start, duration)
    start = np.where(start >= 0, end - duration, start)
    silent = start < 0
    start[silent] = end[silent] = run.start.min()  # until their dependencies' ends are known
    nothing = np.zeros(len(graph), np.int64)
    return Units(
        path=path, rank=run.rank, device=True, timed=True, names=("",), name=nothing, facts=(),
        fact=nothing, row=nothing - 1, start=start, duration=np.maximum(duration, 0), issued=start,
        launch=launch, thread=nothing, stream=np.where(silent, NO_STREAM, stream),
        collective=talks, notes={},
    )  # fmt: skip


def _with_silent(graph: WorkloadGraph, units: Units, end: Ints, zero: int) -> tuple[Ints, Ints]:
    """Start and end of all nodes: of those that were not executed by themselves, when all that they
    wait for has ended.

    Args:
        graph: the nodes.
        units: the same, as executed.
        end: their ends.
        zero: when the step begins: a constant is there from then on, and delays nothing.
    """
    operand_ptr, order_ptr = graph.operand_ptr.tolist(), graph.order_ptr.tolist()
    maker, order = graph.producer[graph.operand].tolist(), graph.order_node.tolist()
    begin, over = units.start.tolist(), end.tolist()
    for node in np.flatnonzero(units.stream == NO_STREAM).tolist():
        before = maker[operand_ptr[node] : operand_ptr[node + 1]]
        before += order[order_ptr[node] : order_ptr[node + 1]]
        over[node] = max((over[other] for other in before if other >= 0), default=zero)
        begin[node] = over[node]
    return np.array(begin, np.int64), np.array(over, np.int64)


def _exchanges(graph: WorkloadGraph, rank: int) -> list[Exchange | None]:
    """The collectives of a rank among its nodes; messages have no common end."""
    known: list[Exchange | None] = []
    for item in graph.tables.communications:
        group = item.groups.members(rank).tolist() if item.groups is not None else []
        size = (item.bytes_in,)
        known.append(
            Exchange(item.kind, tuple(sorted(group)), size, "") if len(group) > 1 else None
        )
    talks = graph.kind == NodeKind.COMMUNICATION
    return [
        known[detail] if communicates else None
        for detail, communicates in zip(graph.detail.tolist(), talks.tolist(), strict=True)
    ]


def _sent(
    ran: Mapping[int, Ran],
    graphs: Mapping[int, WorkloadGraph],
    mirrored: Ints,
    ahead: Mapping[int, int],
) -> tuple[dict[int, Ran], dict[int, Ints]]:
    """The ranks, with messages that end for their senders when they are received, at the latest;
    and when the data of each node were there.

    Args:
        ran: the ranks.
        graphs: their nodes.
        mirrored: the traced rank that stands for each rank.
        ahead: how far each clock is ahead.
    """
    ends = {rank: item.units.end - ahead[rank] for rank, item in ran.items()}
    found, arrived = {}, {}
    for rank, item in ran.items():
        graph, units, own = graphs[rank], item.units, ends[rank]
        over, duration = own.copy(), units.duration.copy()
        begin = units.start - ahead[rank]
        for node in np.flatnonzero(units.collective & (duration > 0)).tolist():
            peers = graph.tables.communications[int(graph.detail[node])].permutation
            if peers is None:
                continue
            # Ranks of another program may have other nodes; then only the own end is known.
            theirs = [
                int(ends[other][node])
                if number >= 0 and len(graphs[other := int(mirrored[number])]) == len(graph)
                else int(own[node])
                for number in (peers.target[rank], peers.source[rank])
            ]
            sent, received = (max(begin[node], min(own[node], end)) for end in theirs)
            # One that only receives goes on when it has the data, however late it notices.
            duration[node] = (sent if peers.target[rank] >= 0 else received) - begin[node]
            over[node] = received if peers.source[rank] >= 0 else sent
        found[rank] = replace(item, units=replace(units, duration=duration))
        arrived[rank] = over + ahead[rank]
    return found, arrived


def _in_streams(graph: WorkloadGraph, units: Units, prelude: int) -> WorkloadGraph:
    """The graph, each node also after the last one of its stream that had ended when it began.

    Executed nodes are kernels of their own: compilers have joined what they join.

    Args:
        graph: the nodes.
        units: the same, as executed.
        prelude: nanoseconds that a node may begin before the end of the one that it waits for, if
            that began before it and ends before it.
    """
    before, after = [graph.order_node], [row_of_entry(graph.order_ptr)]
    ran = np.flatnonzero(units.stream != NO_STREAM)
    for stream in np.unique(units.stream[ran]).tolist():
        own = ran[units.stream[ran] == stream]
        by_end = own[np.argsort(units.end[own], kind="stable")]
        place = np.searchsorted(units.end[by_end], units.start[own] + _ROUNDED, "right") - 1
        found = np.where(place >= 0, by_end[place], -1)
        by_start = np.argsort(units.start[own], kind="stable")
        last, this = by_start[:-1], by_start[1:]
        late = units.end[own[last]] - units.start[own[this]]
        closer = (late > 0) & (late <= prelude) & (units.end[own[last]] <= units.end[own[this]])
        found[this[closer]] = own[last[closer]]
        held = found >= 0
        previous, node = found[held], own[held]
        forward = previous < node
        before.append(previous[forward])
        after.append(node[forward])
    kinds = np.full(sum(map(len, before)), int(EdgeKind.STREAM), np.int8)
    kinds[: len(graph.order_kind)] = graph.order_kind
    waits, first = np.concatenate(after), np.concatenate(before)
    order = np.lexsort((first, waits))
    role = graph.role.copy()
    role[ran[np.isin(role[ran], FUSIBLE)]] = Role.OPAQUE
    return replace(
        graph,
        role=role,
        order_ptr=pointer(np.bincount(waits, minlength=len(graph))),
        order_node=first[order],
        order_kind=kinds[order],
    )


def _lost(times: ModuleTimes, known: Collection[str]) -> dict[str, int]:
    """A note on executed instructions without a node, with their time on a device."""
    lost = sorted(times.executed - times.enclosing - set(known))
    if not lost:
        return {}
    names = set(lost)
    spent = sum(
        int(run.duration[[name in names for name in run.names]].sum()) for run in times.runs
    )
    text = (
        f"instructions with a time but without a node (for example {lost[0]}): "
        f"{spent / len(times.runs) / 1e3:,.1f} us left out"
    )
    return {text: len(lost)}
