"""A small reference consumer for tests: runs a set of traces as simulators do, says who finishes.

The idea: rules prove, this one tries.  Each rank has one compute slot and one communication slot
(or one for each of its communicators and one for messages); whenever a slot is free it takes the
ready node with the lowest id.  COLL and SEND take a communication slot, RECV takes none.  A COLL
ends when every member has issued one that looks the same; a message is matched on (tag, src, dst,
size), first in first out, and a RECV ends when it is issued and its message has arrived.  Durations
are given, so many different ones can be tried.

    result = execute(load_trace_set(Path("out")), seed=7)
    result.finished            # True for every rank, or the run hung
    result.stuck[:3]           # (rank, node id, why)

Collectives are paired as real consumers do: by (group, kind, size) in order of arrival.  If two
that meet are not the same logical operation (they come at different positions of their ranks'
sequences for that group), `mispaired` tells: such a run finishes and is still wrong.

Longer than 300 lines because a consumer is one machine, and it shares nothing with the code that it
tests.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from flint.converters.chakra.check.links import link
from flint.converters.chakra.check.trace_views import Communicator, Facts, View
from flint.converters.chakra.read.trace_set import TraceSet
from flint.converters.chakra.schema import NodeType
from flint.errors import FlintError
from flint.execution.chains import CommunicationOrder, as_communication_order

Durations: TypeAlias = Callable[[int, NDArray[np.uint64]], NDArray[np.int64]]
"""(rank, node ids) -> int64 ticks for each node, at least 0."""

_COMM: Final = (int(NodeType.COLL), int(NodeType.SEND))
_NO_SLOT: Final = int(NodeType.RECV)
_GroupKey: TypeAlias = tuple[Communicator, int]


@dataclass(frozen=True, slots=True)
class Execution:
    """What happened.

    Attributes:
        finished: bool per rank, True if all its nodes are done.
        time: int64 per rank, when its last node was done (ticks).
        stuck: (rank, node id, reason) of nodes that were issued or ready and never ended, first.
        mispaired: (group's lowest member, [(rank, node id), ...]) of collectives that met though
            they are different operations of their group's sequence.
        steps: events processed.
    """

    finished: NDArray[np.bool_]
    time: NDArray[np.int64]
    stuck: tuple[tuple[int, int, str], ...]
    mispaired: tuple[tuple[tuple[int, int], ...], ...]
    steps: int

    @property
    def complete(self) -> bool:
        """True if every rank finished and no collective met a wrong partner."""
        return bool(self.finished.all()) and not self.mispaired


def execute(
    traces: TraceSet,
    *,
    durations: Durations | Literal["own", "random"] = "own",
    seed: int | None = None,
    communication_order: str = CommunicationOrder.RANK,
) -> Execution:
    """Run all ranks.

    Args:
        traces: all ranks of the world; their dependencies must resolve.
        durations: "own" (duration_micros, at least 1 tick of 1 us; communications take 1 tick),
            "random" (independent, long-tailed, for every node), or a function.
        seed: for random durations; giving it means "random".
        communication_order: "rank": a rank has one communication slot; "communicator": one for each
            communicator, which do not slow one another down.

    Raises:
        FlintError: a rank is missing, or a trace names nodes or groups that do not exist.
    """
    if seed is not None:
        durations = "random"
    order = as_communication_order(communication_order)
    if durations == "random":
        generator = np.random.default_rng(seed)
        return _Machine(traces, lambda rank, ids: _random(generator, len(ids)), order).run()
    if durations == "own":
        return _Machine(traces, None, order).run()
    return _Machine(traces, durations, order).run()


def _random(generator: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Ticks over four orders of magnitude, so that any order of events can come up."""
    return np.exp(generator.uniform(0, 9, count)).astype(np.int64)


class _Program:
    """What ranks with the same trace share."""

    def __init__(self, facts: Facts, view: View, order: CommunicationOrder) -> None:
        trace = view.trace
        links = link(trace)
        if len(links.missing) or len(links.duplicate):
            raise FlintError(f"{trace.path}: dependencies do not resolve; check the traces first")
        communicators, of_row = view.communicators
        for communicator in communicators:
            unknown = communicator.group and not facts.group_size(communicator)
            if communicator.problem or unknown:
                what = communicator.problem or f"group {communicator.group} is not in the table"
                raise FlintError(f"{trace.path}: {what}")
        self.communicators = communicators
        self.communicator: list[int] = of_row.tolist()
        one = order == CommunicationOrder.RANK
        self.slot = [0] * len(trace) if one else (of_row + 1).tolist()
        self.trace = trace
        self.kind: list[int] = trace.type.tolist()
        self.ids: list[int] = trace.id.tolist()
        self.parents: list[int] = np.diff(links.every.start).tolist()
        child = links.every.child()
        by_parent = np.argsort(links.every.parent, kind="stable")
        start = np.searchsorted(links.every.parent[by_parent], np.arange(len(trace) + 1))
        children = child[by_parent].tolist()
        bounds = start.tolist()
        self.below = [children[bounds[row] : bounds[row + 1]] for row in range(len(trace))]
        self.nth = _positions(links.order, of_row)
        self.size: list[int] = trace.comm_size.tolist()
        self.collective: list[int] = trace.comm_type.tolist()
        self.src: list[int] = trace.comm_src.tolist()
        self.dst: list[int] = trace.comm_dst.tolist()
        self.tag: list[int] = trace.comm_tag.tolist()


def _positions(order: NDArray[np.int64], communicator: NDArray[np.int64]) -> list[int]:
    """Each collective's position among those of its communicator, in dependency order."""
    position = np.zeros(len(communicator), np.int64)
    for number in range(int(communicator.max(initial=-1)) + 1):
        rows = order[communicator[order] == number]
        position[rows] = np.arange(len(rows))
    return position.tolist()


@dataclass(slots=True)
class _Rank:
    program: _Program
    waiting: list[int]
    ticks: list[int]
    left: int
    time: int = 0
    compute_busy: bool = False
    comm_busy: set[int] = field(default_factory=set)
    """Slots that are taken."""
    compute: list[tuple[int, int]] = field(default_factory=list)
    """Heap of (id, row) of ready nodes for the compute slot."""
    comm: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """The same for each communication slot."""


@dataclass(slots=True)
class _Message:
    arrived: deque[int] = field(default_factory=deque)
    expected: deque[tuple[int, int]] = field(default_factory=deque)


class _Machine:
    def __init__(
        self, traces: TraceSet, durations: Durations | None, order: CommunicationOrder
    ) -> None:
        facts = Facts(traces)
        self.facts = facts
        self.ranks: list[_Rank] = []
        programs = [_Program(facts, view, order) for view in facts.views]
        classes = traces.class_of_rank().tolist()
        for rank, index in enumerate(classes):
            if index < 0:
                raise FlintError(f"{traces.path(rank)}: there is no trace of rank {rank}")
            program = programs[index]
            ticks = (
                _own_ticks(program)
                if durations is None
                else np.maximum(durations(rank, program.trace.id), 0).tolist()
            )
            self.ranks.append(_Rank(program, program.parents.copy(), ticks, len(program.ids)))
        self.group: list[list[int]] = self._groups()
        self.events: list[tuple[int, int, int, int]] = []  # time, sequence, rank, row
        self.sequence = 0
        self.meeting: dict[tuple[_GroupKey, int, int, int], dict[int, int]] = {}
        self.messages: dict[tuple[int, int, int, int], _Message] = {}
        self.issued: dict[tuple[int, int], str] = {}
        self.arrivals: dict[tuple[int, _GroupKey, int, int], int] = {}
        self.mispaired: list[tuple[tuple[int, int], ...]] = []
        self.now = 0

    def _groups(self) -> list[list[int]]:
        """rank -> communicator's index in its program -> number that tells its group."""
        groups: list[list[int]] = [[] for _ in self.ranks]
        for view in self.facts.views:
            for communicator in view.communicators[0]:
                numbers = self.facts.group_of_ranks(communicator, view.ranks).tolist()
                for rank, number in zip(view.ranks.tolist(), numbers, strict=True):
                    groups[rank].append(number)
        return groups

    def run(self) -> Execution:
        for rank, state in enumerate(self.ranks):
            for row, count in enumerate(state.waiting):
                if not count:
                    self._ready(rank, row)
        for rank in range(len(self.ranks)):
            self._issue(rank)
        steps = 0
        while self.events:
            self.now = self.events[0][0]
            touched: dict[int, None] = {}
            # Everything that ends at one instant ends before anything is issued.
            while self.events and self.events[0][0] == self.now:
                _, _, rank, row = heapq.heappop(self.events)
                steps += 1
                self._end(rank, row, touched)
            for rank in touched:
                self._issue(rank)
        return Execution(
            finished=np.array([not state.left for state in self.ranks], bool),
            time=np.array([state.time for state in self.ranks], np.int64),
            stuck=tuple(self._stuck()),
            mispaired=tuple(self.mispaired),
            steps=steps,
        )

    def _ready(self, rank: int, row: int) -> None:
        state = self.ranks[rank]
        kind = state.program.kind[row]
        if kind == _NO_SLOT:
            self._issue_recv(rank, row)
        elif kind in _COMM:
            waiting = state.comm.setdefault(state.program.slot[row], [])
            heapq.heappush(waiting, (state.program.ids[row], row))
        else:
            heapq.heappush(state.compute, (state.program.ids[row], row))

    def _issue(self, rank: int) -> None:
        state = self.ranks[rank]
        if state.compute and not state.compute_busy:
            state.compute_busy = True
            self._schedule(rank, heapq.heappop(state.compute)[1])
        for slot, waiting in state.comm.items():
            if not waiting or slot in state.comm_busy:
                continue
            state.comm_busy.add(slot)
            row = heapq.heappop(waiting)[1]
            if state.program.kind[row] == NodeType.SEND:
                self._schedule(rank, row)
            else:
                self._issue_coll(rank, row)

    def _schedule(self, rank: int, row: int, ticks: int | None = None) -> None:
        self.sequence += 1
        ticks = self.ranks[rank].ticks[row] if ticks is None else ticks
        heapq.heappush(self.events, (self.now + ticks, self.sequence, rank, row))

    def _issue_coll(self, rank: int, row: int) -> None:
        program = self.ranks[rank].program
        number = program.communicator[row]
        communicator = program.communicators[number]
        kind, size = program.collective[row], program.size[row]
        key = (communicator, self.group[rank][number])
        # The n-th arrival of this rank with this look meets the others' n-th.
        nth = self.arrivals.get((rank, key, kind, size), 0)
        self.arrivals[rank, key, kind, size] = nth + 1
        present = self.meeting.setdefault((key, kind, size, nth), {})
        present[rank] = row
        members = self.facts.group_size(communicator)
        self.issued[rank, row] = f"waits for the other members of its group of {members}"
        if len(present) < members:
            return
        del self.meeting[key, kind, size, nth]
        if len({self.ranks[member].program.nth[own] for member, own in present.items()}) > 1:
            self.mispaired.append(
                tuple(
                    (member, self.ranks[member].program.ids[own])
                    for member, own in sorted(present.items())
                )
            )
        ticks = max(self.ranks[member].ticks[own] for member, own in present.items())
        for member, own in present.items():
            del self.issued[member, own]
            self._schedule(member, own, ticks)

    def _issue_recv(self, rank: int, row: int) -> None:
        program = self.ranks[rank].program
        key = (program.tag[row], program.src[row], rank, program.size[row])
        message = self.messages.setdefault(key, _Message())
        if message.arrived:
            message.arrived.popleft()
            self._schedule(rank, row, 0)
        else:
            message.expected.append((rank, row))
            self.issued[rank, row] = f"waits for a message of {key[3]} bytes, tag {key[0]}, " + (
                f"from rank {key[1]}"
            )

    def _end(self, rank: int, row: int, touched: dict[int, None]) -> None:
        state = self.ranks[rank]
        kind = state.program.kind[row]
        state.left -= 1
        state.time = self.now
        touched[rank] = None
        if kind in _COMM:
            state.comm_busy.discard(state.program.slot[row])
        elif kind != _NO_SLOT:
            state.compute_busy = False
        if kind == NodeType.SEND:
            self._arrive(rank, row)
        for child in state.program.below[row]:
            state.waiting[child] -= 1
            if not state.waiting[child]:
                self._ready(rank, child)

    def _arrive(self, rank: int, row: int) -> None:
        program = self.ranks[rank].program
        key = (program.tag[row], rank, program.dst[row], program.size[row])
        message = self.messages.setdefault(key, _Message())
        if message.expected:
            receiver = message.expected.popleft()
            del self.issued[receiver]
            self._schedule(*receiver, 0)
        else:
            message.arrived.append(row)

    def _stuck(self) -> list[tuple[int, int, str]]:
        stuck = [
            (rank, self.ranks[rank].program.ids[row], reason)
            for (rank, row), reason in self.issued.items()
        ]
        for rank, state in enumerate(self.ranks):
            stuck += [
                (rank, node, "is ready, but the communication slot is held")
                for node, _ in sorted(chain.from_iterable(state.comm.values()))
            ]
            if state.left and not any(entry[0] == rank for entry in stuck):
                row = next(row for row, count in enumerate(state.waiting) if count > 0)
                stuck.append((rank, state.program.ids[row], "waits for a node that never ran"))
        return stuck


def _own_ticks(program: _Program) -> list[int]:
    communicates = np.isin(program.trace.type, (*_COMM, _NO_SLOT))
    ticks = np.where(communicates, 1, np.maximum(program.trace.duration.astype(np.int64), 1))
    return ticks.tolist()  # type: ignore[no-any-return]  # numpy types tolist as Any
