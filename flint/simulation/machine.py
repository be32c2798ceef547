"""The machine: runs the nodes of all kinds of ranks together, event by event.

The idea: an actor stands for all ranks that behave alike.  It has one compute slot and one
communication slot, or one for each of its communicators; a free slot takes the ready node that
comes first in issue order.  COLL and SEND take a communication slot, RECV takes none.  A COLL
begins when every kind of member has issued its own and takes as long as that of the slowest member;
a RECV ends when it is issued and its message has arrived.  Time is counted in whole ticks, so that
sums are exact whatever their order.

COLL and SEND nodes of one rank that run at the same time share the links that they have in common:
each takes a part of the capacity of the rank's links on each tier.  Where these add up to n times
the capacity, all that use the tier take n times as long, so that nothing ends before the links
could have carried all of it.  A COLL is as slow as on its busiest member; data that a rank receives
is not counted.

Nodes of a recorded step are free: they take no slot, are not slowed down and slow down nothing.  A
free COLL takes as long as that of its fastest member, which arrived last.

Communication takes memory bandwidth and units from concurrent kernels: while a rank's COLL or SEND
runs, its kernels advance at that node's speed ``beside``; with several, at the lowest.

    actor = Actor(types, ptr, deps, ticks, channel)
    run([actor], members=[1]).end[0]

Longer than 300 lines because the machine is one loop over events, and all of it changes the same
state.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flint.execution.node_types import NodeType
from flint.graph.graph import Ints
from flint.mesh.ragged import row_of_entry
from flint.simulation.actor_columns import CAPACITY, Actor

_COMMUNICATES = (int(NodeType.COLL), int(NodeType.SEND))
_COPIES = (int(NodeType.MEM_LOAD), int(NodeType.MEM_STORE))
_COLL, _SEND, _RECV = int(NodeType.COLL), int(NodeType.SEND), int(NodeType.RECV)


@dataclass(frozen=True, eq=False, slots=True)
class Run:
    """When everything happened.

    Attributes:
        start, end: ticks by actor and node, -1 for nodes that never ran.  A COLL starts when its
            last member has arrived, a RECV when it is issued.
        stuck: (actor, node) that did not run: the first of each actor that did not finish.
        events: number of nodes that ended.
    """

    start: tuple[Ints, ...]
    end: tuple[Ints, ...]
    stuck: tuple[tuple[int, int], ...]
    events: int

    @property
    def ticks(self) -> int:
        """When the last node ended."""
        return max((int(end.max(initial=0)) for end in self.end), default=0)


class _Transfer:
    """A running COLL or SEND.

    Attributes:
        members: (actor, node) that it runs on.
        until: its end at the current speed.
        sharing: what all communications would take of its busiest links at full speed, at least
            their capacity.
    """

    __slots__ = ("members", "sharing", "until")

    def __init__(self, members: list[tuple[int, int]], until: int, sharing: int) -> None:
        self.members, self.until, self.sharing = members, until, sharing


class _State:
    """One actor while it runs; plain lists, because access to single array elements is slow."""

    __slots__ = (
        "above", "arrivals", "below", "beside", "channel", "comm", "comm_busy", "compute",
        "compute_busy", "delay", "end", "first", "free", "load", "loads", "running", "slot",
        "speed", "start", "ticks", "transfers", "types", "until",
    )  # fmt: skip

    def __init__(self, actor: Actor) -> None:
        count = len(actor)
        self.types: list[int] = actor.types.tolist()
        self.ticks: list[int] = actor.ticks.tolist()
        self.channel: list[int] = actor.channel.tolist()
        self.above: list[int] = np.diff(actor.ptr).tolist()
        consumer = row_of_entry(actor.ptr)
        order = np.argsort(actor.deps, kind="stable")
        self.below: list[int] = consumer[order].tolist()
        self.first: list[int] = np.searchsorted(
            actor.deps[order], np.arange(count + 1, dtype=np.int64)
        ).tolist()
        self.start = [-1] * count
        self.end = [-1] * count
        self.delay: list[int] | None = None if actor.delay is None else actor.delay.tolist()
        free = np.flatnonzero(actor.free) if actor.free is not None else ()
        self.free: frozenset[int] = frozenset(map(int, free))
        self.compute: list[int] = []
        self.slot: list[int] = [0] * count if actor.slot is None else actor.slot.tolist()
        slots = max(self.slot, default=0) + 1
        self.comm: list[list[int]] = [[] for _ in range(slots)]
        self.compute_busy = False
        self.comm_busy = [False] * slots
        #: Running COLL and SEND nodes.
        self.transfers: dict[int, _Transfer] = {}
        beside = actor.beside
        self.beside: list[float] | None = None if beside is None else beside.speed.tolist()
        self.load: list[int] = [0] * count if beside is None else beside.load.tolist()
        self.loads: list[list[int]] = [[CAPACITY]] if beside is None else beside.loads.tolist()
        #: The running kernel, its end at the current speed, and the speed of kernels.
        self.running = -1
        self.until = 0
        self.speed = 1.0
        self.arrivals: dict[int, int] = {}

    def sharing(self, row: int) -> int:
        """What the running communications take of the busiest links that one of them uses."""
        own = self.loads[self.load[row]]
        together = zip(*(self.loads[self.load[other]] for other in self.transfers), strict=True)
        taken = (sum(parts) for part, parts in zip(own, together, strict=True) if part)
        return max(max(taken, default=0), CAPACITY)


class _Machine:
    def __init__(self, actors: Sequence[Actor], members: Sequence[int]) -> None:
        self.states = [_State(actor) for actor in actors]
        self.members = members
        self.events: list[tuple[int, int, int, int]] = []
        self.sequence = 0
        self.now = 0
        #: (meeting, occurrence) -> the members that have arrived, with their nodes.
        self.meetings: dict[tuple[int, int], list[tuple[int, int]]] = {}
        #: Actors whose number of running communications has changed.
        self.crowded: dict[int, None] = {}
        self.arrived: dict[int, int] = {}
        self.expected: dict[int, deque[tuple[int, int]]] = {}

    def run(self) -> Run:
        for number, state in enumerate(self.states):
            for row, above in enumerate(state.above):
                if not above:
                    self.ready(number, row)
        for number in range(len(self.states)):
            self.issue(number)
        self.share()
        events, count = self.events, 0
        pop = heapq.heappop
        while events:
            self.now = now = events[0][0]
            touched: dict[int, None] = {}
            # Everything that ends at one instant ends before anything is issued.
            while events and events[0][0] == now:
                _, _, number, row = pop(events)
                if row < 0:  # it has waited for its delay
                    touched[number] = None
                    self.begin(number, ~row)
                    continue
                state = self.states[number]
                if state.end[row] >= 0 or (row == state.running and state.until != now):
                    continue  # the kernel was slowed down or sped up in the meantime
                transfer = state.transfers.get(row)
                if transfer is not None and transfer.until != now:
                    continue  # as was the communication
                count += 1
                touched[number] = None
                self.finish(number, row)
            for number in touched:
                self.issue(number)
            self.share()
        stuck = tuple(
            (number, state.end.index(-1))
            for number, state in enumerate(self.states)
            if -1 in state.end
        )
        return Run(
            tuple(np.array(state.start, np.int64) for state in self.states),
            tuple(np.array(state.end, np.int64) for state in self.states),
            stuck,
            count,
        )

    def ready(self, number: int, row: int) -> None:
        delay = self.states[number].delay
        if delay is not None and delay[row] > 0:
            self.sequence += 1
            heapq.heappush(self.events, (self.now + delay[row], self.sequence, number, ~row))
        else:
            self.begin(number, row)

    def begin(self, number: int, row: int) -> None:
        state = self.states[number]
        kind = state.types[row]
        if row in state.free and kind not in (_COLL, _RECV):
            self.go(number, row, state.ticks[row])
        elif row in state.free and kind == _COLL:
            self.meet(number, row)
        elif kind in _COMMUNICATES or kind in _COPIES:
            heapq.heappush(state.comm[state.slot[row]], row)
        elif kind == _RECV:
            self.receive(number, row)
        else:
            heapq.heappush(state.compute, row)

    def issue(self, number: int) -> None:
        state = self.states[number]
        if state.compute and not state.compute_busy:
            state.compute_busy = True
            row = heapq.heappop(state.compute)
            self.compute(number, row)
        for slot, waiting in enumerate(state.comm):
            if waiting and not state.comm_busy[slot]:
                state.comm_busy[slot] = True
                row = heapq.heappop(waiting)
                if state.types[row] == _SEND:
                    self.talk([(number, row)], state.ticks[row])
                elif state.types[row] in _COPIES:
                    self.schedule(number, row, state.ticks[row])
                else:
                    self.meet(number, row)

    def schedule(self, number: int, row: int, ticks: int) -> None:
        self.sequence += 1
        self.states[number].start[row] = self.now
        heapq.heappush(self.events, (self.now + ticks, self.sequence, number, row))

    def go(self, number: int, row: int, ticks: int) -> None:
        """Run a free node; if it begins early because two clocks differ, it also ends early."""
        state = self.states[number]
        early = min(state.delay[row], 0) if state.delay is not None else 0
        self.schedule(number, row, max(ticks + early, 0))
        state.start[row] = max(self.now + early, 0)

    def compute(self, number: int, row: int) -> None:
        state = self.states[number]
        ticks = state.ticks[row]
        if state.speed < 1:
            ticks = math.ceil(ticks / state.speed)
        state.running, state.until = row, self.now + ticks
        self.schedule(number, row, ticks)

    def talk(self, members: list[tuple[int, int]], ticks: int) -> None:
        transfer = _Transfer(members, self.now + ticks, CAPACITY)
        for number, row in members:
            self.schedule(number, row, ticks)
            state = self.states[number]
            state.transfers[row] = transfer
            if ticks:
                self.slow_down(number)
            if len(state.transfers) > 1:
                self.crowded[number] = None

    def share(self) -> None:
        """Slow down or speed up communications whose links are now shared by more or fewer."""
        if not self.crowded:
            return
        running = (self.states[number].transfers.values() for number in self.crowded)
        for transfer in {id(item): item for some in running for item in some}.values():
            sharing = max(self.states[member].sharing(row) for member, row in transfer.members)
            if sharing == transfer.sharing or transfer.until <= self.now:
                continue
            left = -((self.now - transfer.until) * sharing // transfer.sharing)
            transfer.until, transfer.sharing = self.now + left, sharing
            for member, row in transfer.members:
                self.sequence += 1
                heapq.heappush(self.events, (transfer.until, self.sequence, member, row))
        self.crowded.clear()

    def slow_down(self, number: int) -> None:
        """Set the speed of kernels to what the current communications allow."""
        state = self.states[number]
        if state.beside is None:
            return
        speed = min(map(state.beside.__getitem__, state.transfers), default=1.0)
        stretch, state.speed = state.speed / speed, speed
        if stretch == 1 or state.running < 0 or state.until <= self.now:
            return
        left = math.ceil((state.until - self.now) * stretch)
        state.until = self.now + left
        self.sequence += 1
        heapq.heappush(self.events, (state.until, self.sequence, number, state.running))

    def meet(self, number: int, row: int) -> None:
        state = self.states[number]
        channel = state.channel[row]
        if self.members[channel] == 1:
            self.exchange([(number, row)])
            return
        # The n-th arrival of this actor meets the others' n-th.
        nth = state.arrivals.get(channel, 0)
        state.arrivals[channel] = nth + 1
        present = self.meetings.setdefault((channel, nth), [])
        present.append((number, row))
        if len(present) < self.members[channel]:
            return
        del self.meetings[channel, nth]
        self.exchange(present)

    def exchange(self, members: list[tuple[int, int]]) -> None:
        """Start a COLL whose members have all arrived."""
        ticks = [self.states[number].ticks[row] for number, row in members]
        number, row = members[0]
        if row not in self.states[number].free:
            self.talk(members, max(ticks))
            return
        fastest = min((item for item in ticks if item >= 0), default=0)
        for number, row in members:
            self.go(number, row, fastest)

    def receive(self, number: int, row: int) -> None:
        message = self.states[number].channel[row]
        self.states[number].start[row] = self.now
        if self.arrived.get(message, 0):
            self.arrived[message] -= 1
            ticks = self.states[number].ticks[row] if row in self.states[number].free else 0
            self.schedule(number, row, max(ticks, 0))
        else:
            self.expected.setdefault(message, deque()).append((number, row))

    def finish(self, number: int, row: int) -> None:
        state = self.states[number]
        state.end[row] = self.now
        kind = state.types[row]
        free = row in state.free
        if kind in _COMMUNICATES and not free:
            del state.transfers[row]
            state.comm_busy[state.slot[row]] = False
            if state.transfers:
                self.crowded[number] = None
            self.slow_down(number)
        if kind in _COPIES:
            state.comm_busy[state.slot[row]] = False
        elif kind == _SEND:
            message = state.channel[row]
            waiting = self.expected.get(message)
            if waiting:
                receiver, node = waiting.popleft()
                self.sequence += 1
                heapq.heappush(self.events, (self.now, self.sequence, receiver, node))
            else:
                self.arrived[message] = self.arrived.get(message, 0) + 1
        elif kind not in (_COLL, _RECV) and not free:
            state.compute_busy = False
            state.running = -1
        above = state.above
        for at in range(state.first[row], state.first[row + 1]):
            child = state.below[at]
            above[child] -= 1
            if not above[child]:
                self.ready(number, child)


def run(actors: Sequence[Actor], members: Sequence[int]) -> Run:
    """Run all actors to the end.

    Args:
        actors: the kinds of ranks.
        members: how many actors take part in each meeting.
    """
    return _Machine(actors, members).run()
