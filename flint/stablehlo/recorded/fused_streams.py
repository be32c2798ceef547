"""Streams of opened recordings: the issue order is kept, op by op.

The idea: fusing decides later what one kernel is, so the ops of a stream are not chained one by
one, because then neighbours could not be joined.  The order of streams is kept where they meet:

1. **A stream runs in order.** If one of its ops waits for another stream, all later ops of its
   stream wait for that, too. A device computes one thing at a time, in issue order, so that only
   waits for other streams delay an op: together this is the stream.
2. **Communications** wait for earlier ops on their own stream, by an edge, and for what the
   recorder saw them wait for. Their order is that of the recording.
3. **No kernel reaches across.** A value that is only used after a communication that has met its
   stream is made before it: the communication waits for it, which fusing respects. A value that is
   only used on another stream is made separately: the next op of its own stream waits for it.

Constants, broadcasts and views between composites have no fixed position: they are made where they
are used.

    mm; all-reduce (waits for mm); add (of the all-reduce); embedding of the next batch

    add       -> all-reduce    data
    embedding -> all-reduce order: it comes after the add on its stream
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.graph import EdgeKind, Ints, NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.mesh.ragged import row_of_entry, total_by_row
from flint.passes.columns import lists
from flint.stablehlo.read.records import Issue

#: The kernels or the communications of a stream -> the last of its nodes that has ended.
Moment = Mapping[tuple[int, bool], int]

#: Roles whose ops may become part of a later op's kernel.
_JOINING = (Role.ELEMENTWISE, Role.MOVEMENT, Role.CONTRACTION)


@dataclass(frozen=True, slots=True)
class Opened:
    """A recorded op in the graph.

    Attributes:
        issue: how it was issued.
        nodes: its nodes in the graph; none if it only passes values through.
        source: its origin, an index into the table of sources.
    """

    issue: Issue
    nodes: range
    source: int = 0


class Streams:
    """The current state of a recording's streams.

    Attributes:
        edges: (node, the earlier one that it waits for, kind).
    """

    def __init__(self, graph: WorkloadGraph, ops: Sequence[Opened]) -> None:
        self.edges: list[tuple[int, int, int]] = []
        self._numbers = {item.issue.number for item in ops}
        self._communicates: list[bool] = (graph.kind == NodeKind.COMMUNICATION).tolist()
        makers = lists(graph.operand_ptr, graph.producer[graph.operand])
        ordered = lists(graph.order_ptr, graph.order_node)
        self._before = [
            {*found, *others} - {-1} for found, others in zip(makers, ordered, strict=True)
        ]
        self._joins: list[bool] = (
            (graph.kind == NodeKind.COMPUTE) & np.isin(graph.role, _JOINING)
        ).tolist()
        self._stream = _streams_of(graph, ops)
        self._first_use, self._stays = _uses(self._before, self._stream)
        #: For every node so far: what has ended when it starts.
        self._clock: list[Moment] = []
        #: By stream: what all later ops wait for, and its last kernel and communication.
        self._held: dict[int, Moment] = {}
        self._last: dict[tuple[int, bool], int] = {}
        self._moment: dict[int, Moment] = {}
        #: Kernels of a stream that no communication has met yet.
        self._open: dict[int, list[int]] = {}

    def issue(self, item: Opened) -> None:
        """One recorded op."""
        issue = item.issue
        held = dict(self._held.get(issue.stream, {}))
        for number in issue.after:
            if number not in self._moment:
                raise FlintError(
                    f"recorded op {issue.number} waits for op {number}, which "
                    + ("does not come before it" if number in self._numbers else "does not exist")
                )
            _merge(held, self._moment[number])
        self._hold(issue.stream, held)
        self._pass(item.nodes.start)
        for node in item.nodes:
            if self._stream[node] is None:
                self._pass(node + 1)
            else:
                self._node(node, issue.stream)
        self._moment[issue.number] = self._now(issue.stream)

    def _pass(self, end: int) -> None:
        """Nodes up to ``end`` without a fixed position: they are where their operands are."""
        for node in range(len(self._clock), end):
            clock: dict[tuple[int, bool], int] = {}
            for maker in self._before[node]:
                _merge(clock, self._over(maker))
            self._clock.append(clock)

    def _node(self, node: int, stream: int) -> None:
        communicates = self._communicates[node]
        clock: dict[tuple[int, bool], int] = {}
        for maker in self._before[node]:
            _merge(clock, self._over(maker))
        wanted = dict(self._held.get(stream, {}))
        for kind in (True, False):
            # Kernels of a stream need no edge among themselves.
            if (communicates or kind) and (stream, kind) in self._last:
                wanted[stream, kind] = self._last[stream, kind]
        for place, other in sorted(wanted.items(), key=lambda entry: -entry[1]):
            if clock.get(place, -1) < other:
                own = place[0] == stream
                self.edges.append((node, other, EdgeKind.STREAM if own else EdgeKind.ORDER))
                _merge(clock, self._over(other))
        if not communicates:
            self._leave(node, stream)
        self._last[stream, communicates] = node
        held = {place: other for place, other in clock.items() if place[0] != stream}
        self._hold(stream, held)
        self._clock.append(self._now(stream))
        if communicates:
            self._meet(node, clock)

    def _leave(self, node: int, stream: int) -> None:
        """Make values that their own stream does not use finish before the stream continues."""
        before = self._last.get((stream, False), -1)
        if before >= 0 and self._joins[before] and not self._stays[before]:
            self.edges.append((node, before, EdgeKind.STREAM))
        self._open.setdefault(stream, []).append(node)

    def _meet(self, node: int, clock: Moment) -> None:
        """Make a communication wait for values that are only used after it."""
        for (stream, communicates), last in clock.items():
            left = self._open.get(stream)
            if communicates or not left:
                continue
            for other in left:
                late = self._first_use[other] > node
                if other <= last and late and self._joins[other]:
                    self.edges.append((node, other, EdgeKind.ORDER))
            self._open[stream] = [other for other in left if other > last]

    def _hold(self, stream: int, more: Moment) -> None:
        held = self._held.get(stream, {})
        if any(held.get(place, -1) < other for place, other in more.items()):
            merged = {place: other for place, other in more.items() if place[0] != stream}
            _merge(merged, held)
            self._held[stream] = merged

    def _over(self, node: int) -> Moment:
        """What has ended once a node has."""
        stream = self._stream[node]
        if stream is None:
            return self._clock[node]
        return {**self._clock[node], (stream, self._communicates[node]): node}

    def _now(self, stream: int) -> Moment:
        """What has ended once everything issued on a stream has."""
        own = {
            (stream, kind): self._last[stream, kind]
            for kind in (True, False)
            if (stream, kind) in self._last
        }
        return {**self._held.get(stream, {}), **own}


def _streams_of(graph: WorkloadGraph, ops: Sequence[Opened]) -> list[int | None]:
    """The stream in which each node has a fixed position; None if it has none."""
    placed = ~_made_where_used(graph)
    streams: list[int | None] = [None] * len(graph)
    for item in ops:
        for node in item.nodes:
            if placed[node]:
                streams[node] = item.issue.stream
    return streams


def _made_where_used(graph: WorkloadGraph) -> NDArray[np.bool_]:
    """Constants, views and broadcasts, which kernels make themselves, shape [nodes]."""
    owner = row_of_entry(graph.result_ptr)
    results = total_by_row(graph.value_bytes[graph.inputs :], owner, len(graph))
    operands: Ints = total_by_row(graph.value_bytes[graph.operand], graph.consumer, len(graph))
    single = (np.diff(graph.operand_ptr) == 1) & (np.diff(graph.work_ptr) == 0)
    broadcast = (graph.role == Role.MOVEMENT) & single & (2 * operands <= results)
    made: NDArray[np.bool_] = np.isin(graph.role, (Role.GENERATE, Role.ALIAS)) | broadcast
    made &= graph.kind == NodeKind.COMPUTE
    return made


def _uses(before: Sequence[set[int]], stream: Sequence[int | None]) -> tuple[list[int], list[bool]]:
    """For every node, its first user (-1: none), and whether its own stream uses it."""
    first_use = [-1] * len(before)
    stays = [True] * len(before)
    # A node without a fixed position is made where it is first used.
    home = list(stream)
    for node in range(len(before) - 1, -1, -1):
        for maker in before[node]:
            if stream[maker] is None:
                home[maker] = home[node]
            same = home[node] is None or stream[maker] is None or home[node] == stream[maker]
            stays[maker] = same or (first_use[maker] >= 0 and stays[maker])
            first_use[maker] = node
    return first_use, stays


def _merge(into: dict[tuple[int, bool], int], moment: Moment) -> None:
    for place, node in moment.items():
        if into.get(place, -1) < node:
            into[place] = node
