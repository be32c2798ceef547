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
from typing import NamedTuple

import numpy as np

from flint.errors import FlintError
from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.mesh.ranks import from_mask
from flint.passes.host_lane import PRELUDE
from flint.post_execution.exchanges import Exchange
from flint.post_execution.instruction_nodes import InstructionNodes, instruction_nodes
from flint.post_execution.load_rank import Ran
from flint.post_execution.meetings import meet
from flint.post_execution.module_times import DeviceRun, ModuleTimes, lost
from flint.post_execution.node_work import with_known_work, with_nanoseconds
from flint.post_execution.stream_order import in_streams
from flint.post_execution.timings import clocks_of, timings_of, together
from flint.post_execution.units import NO_STREAM, Units
from flint.workload.programs import Program, with_communicators

#: The device of profiles of hosts, whose ops run side by side.
_HOST = "CPU"
MIRRORS = "ranks without a profile: each runs what a profiled rank ran"
OTHER_COUNT = "executions of instructions that ran more or less often than in the program: left out"


class Part(NamedTuple):
    """What the devices of one group run.

    Attributes:
        programs: what the ranks run.
        owner: per program, for each of its graph's sources the executed instruction that it is part
            of ("": none).
        times: the profile.
        unknown: ops whose FLOPs are not known if the programs have none for them.
    """

    programs: Sequence[Program]
    owner: Mapping[str, Sequence[str]]
    times: ModuleTimes
    unknown: Collection[str]


def replayed_programs(parts: Sequence[Part], warnings: dict[str, int]) -> tuple[Program, ...]:
    """A program per traced rank.

    Args:
        parts: the groups of devices; together they have all ranks.
        warnings: notes are added here.

    Raises:
        FlintError: no instruction has a time, or the ranks' programs do not match.
    """
    runs = {run.rank: run for part in parts for run in part.times.runs}
    programs = [program for part in parts for program in part.programs]
    world, path = programs[0].ranks.world, parts[0].times.path
    mirrored = _mirrored(programs, runs, world)
    if world > len(runs):
        warnings[MIRRORS] = world - len(runs)
    ran: dict[int, Ran] = {}
    bases: dict[int, tuple[Program, InstructionNodes, Part]] = {}
    for part in parts:
        known: set[str] = set()
        for program in part.programs:
            nodes = instruction_nodes(program.graph, part.owner[program.name], part.times.executed)
            known |= {*nodes.of}
            for rank in program.ranks.array().tolist():
                if rank in runs:
                    units = _units(nodes, runs[rank], path, warnings)
                    ran[rank] = Ran(units, None, _exchanges(nodes.graph, rank))
                    bases[rank] = program, nodes, part
        warnings |= lost(part.times, known)
    ran = dict(sorted(ran.items()))
    if not any(item.units.duration.any() for item in ran.values()):
        raise FlintError(f"{path}: no instruction of the program has a time in the trace")
    meetings = meet({rank: [e for e in item.exchanges if e] for rank, item in ran.items()})
    clocks = clocks_of(ran, meetings, {rank: run.clock for rank, run in runs.items()})
    ran = together(ran, meetings, clocks)
    ran, ends = _sent(ran, {rank: bases[rank][1].graph for rank in ran}, mirrored, clocks)
    timings = timings_of(ran, clocks)
    made = []
    kept: set[int] = set()  # the groups whose programs are kept as text
    for rank, item in ran.items():
        program, nodes, part = bases[rank]
        is_first, times = id(part) not in kept, part.times
        kept.add(id(part))
        zero = int((item.units.start - timings[rank].start)[0])
        over = int(runs[rank].end.max()) - zero
        start, end = _with_silent(nodes.graph, item.units, ends[rank], zero)
        prelude = 0 if times.device == _HOST else PRELUDE
        graph = with_known_work(in_streams(nodes.graph, item.units, prelude), part.unknown)
        made.append(
            replace(
                program,
                name=f"rank_{rank}",
                graph=with_nanoseconds(graph, item.units.duration),
                ranks=from_mask(mirrored == rank),
                module=program.module if is_first else None,
                listing=program.listing if is_first else None,
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
