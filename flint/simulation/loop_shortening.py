"""Steady state: long loops simulated by a few iterations, with the same result to the tick.

The idea: run the program with fewer iterations of its outermost loops.  If the machine stands at
time t2 as it stood at t1, only p iterations further on, and nothing of the last p iterations has
begun, then p more iterations before the end would do again what happened from t1 to t2: everything
later is t2 - t1 later.  That is *checked*, not assumed: for every node of every actor what is over,
how long it still runs or that it has not begun, and that all iterations from there on have the same
edges.  A loop that does not come to rest so is run in full.

    short, cuts = shorten(graph)            # 1000 iterations -> 10, period 1, 2 or 3
    repeats(cuts, everyone, run(...))       # when to insert how many periods, None: no such state

What the state holds is enough: what is ready follows from what is over, and with one chain of
communications per rank at most one of them waits for its partners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from flint.graph.graph import Ints, Loop, NodeKind, WorkloadGraph
from flint.graph.unrolling import instances_of
from flint.simulation.actors import Actors
from flint.simulation.machine import Actor, Run

#: Iterations until a loop has come to rest and a period has been seen.
_ENOUGH: Final = 8
#: Periods that are looked for; what is left out is a multiple of all of them.
_PERIODS: Final = (1, 2, 3)
_MULTIPLE: Final = 6
_NOT_BEGUN: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Cut:
    """A loop that was shortened.

    Attributes:
        node: of the program's graph.
        trips: iterations that are left.
        left_out: iterations that were taken away.
        first: number of its first instance.
        instances: of one iteration.
    """

    node: int
    trips: int
    left_out: int
    first: int
    instances: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """What happened in ``start < time <= end`` happens ``times`` more times."""

    start: int
    end: int
    times: int


def shorten(
    graph: WorkloadGraph, keep: frozenset[int] = frozenset()
) -> tuple[WorkloadGraph, list[Cut]]:
    """The program with its outermost long loops shortened.

    Args:
        graph: the program.
        keep: loop nodes that stay as they are.
    """
    loops = list(graph.loops)
    cuts: list[Cut] = []
    first = 0
    for node in range(len(graph)) if loops else ():
        detail = int(graph.detail[node])
        if graph.kind[node] == NodeKind.LOOP:
            loop = loops[detail]
            size = instances_of(loop.body)
            trips = _trips(loop) if node not in keep and size else loop.trip_count
            if trips < loop.trip_count:
                cuts.append(Cut(node, trips, loop.trip_count - trips, first, size))
                loops[detail] = replace(loop, trip_count=trips)
            first += size * trips
        else:
            first += 1
    return (replace(graph, loops=tuple(loops)), cuts) if cuts else (graph, [])


def _trips(loop: Loop) -> int:
    """How many iterations to run; all where fewer would not be the same loop."""
    if not all(_made(loop.body, i, loop.carried) for i in range(loop.carried)):
        return loop.trip_count
    least = _ENOUGH + (loop.lookahead + 1 if loop.lookahead is not None else 0)
    return min(loop.trip_count, least + (loop.trip_count - least) % _MULTIPLE)


def _made(body: WorkloadGraph, index: int, carried: int) -> bool:
    """Whether carried value ``index`` is the same in every iteration, seen from that iteration.

    It is made in the body, passed on unchanged or an invariant.  A value that is another carried
    one (a swap, a shift register) looks further back the longer the loop runs.
    """
    value = int(body.outputs[index])
    if value < body.inputs:
        return value == index or value >= carried
    return _by_a_node(body, value)


def _by_a_node(graph: WorkloadGraph, value: int) -> bool:
    """Whether a compute or communication node makes a value, within loops if need be."""
    node = int(graph.producer[value])
    if node < 0:
        return False
    detail = int(graph.detail[node])
    result = value - graph.inputs - int(graph.result_ptr[node])
    if graph.kind[node] == NodeKind.LOOP:
        loop = graph.loops[detail]
        return loop.trip_count > 0 and _by_a_node(loop.body, int(loop.body.outputs[result]))
    return True


def repeats(cuts: Sequence[Cut], everyone: Actors, happened: Run) -> list[Repeat | None]:
    """Where the iterations that were left out belong; None for a loop without such a place."""
    return [_repeat(cut, everyone, happened) for cut in cuts]


def _repeat(cut: Cut, everyone: Actors, happened: Run) -> Repeat | None:
    parts = [
        _Part(cut, actor, info.emission.instance, happened.start[i], happened.end[i])
        for i, (actor, info) in enumerate(zip(everyone.columns, everyone.info, strict=True))
    ]
    if not any(part.nodes for part in parts):
        return Repeat(0, 0, 0)  # its iterations hold nothing that runs
    over = np.max([part.over() for part in parts if part.nodes], axis=0)
    for period in _PERIODS:
        for iteration in range(cut.trips - 2 * period):
            start, end = int(over[iteration]), int(over[iteration + period])
            if all(part.alike(start, end, period) for part in parts) and all(
                part.regular(start) for part in parts
            ):
                return Repeat(start, end, cut.left_out // period)
    return None


class _Part:
    """What one actor does in a loop and beside it."""

    def __init__(self, cut: Cut, actor: Actor, instance: Ints, start: Ints, end: Ints) -> None:
        bounds = [cut.first, cut.first + cut.instances, cut.first + cut.instances * cut.trips]
        low, once, high = np.searchsorted(instance, bounds).tolist()
        self.actor, self.trips = actor, cut.trips
        self.low, self.high = low, high
        self.nodes = once - low
        self.start, self.end = start, end

    def over(self) -> Ints:
        """When each iteration is over, shape [trips]."""
        over: Ints = self.end[self.low : self.high].reshape(self.trips, self.nodes).max(axis=1)
        return over

    def alike(self, start: int, end: int, period: int) -> bool:
        """Whether the state at ``end`` is the one at ``start``, ``period`` iterations further."""
        before, after = self._state(start), self._state(end)
        for outside in (slice(0, self.low), slice(self.high, None)):
            then, now = before[outside], after[outside]
            if not np.array_equal(then, now) or not np.isin(now, (0, _NOT_BEGUN)).all():
                return False
        then = before[self.low : self.high].reshape(self.trips, self.nodes)
        now = after[self.low : self.high].reshape(self.trips, self.nodes)
        return bool(
            np.array_equal(then[: self.trips - period], now[period:])
            and (now[:period] == 0).all()
            and (now[self.trips - period :] == _NOT_BEGUN).all()
        )

    def _state(self, time: int) -> Ints:
        """Of each node 0 if it is over, how long it still runs, or that it has not begun."""
        state: Ints = np.where(self.start > time, _NOT_BEGUN, np.maximum(self.end - time, 0))
        return state

    def regular(self, time: int) -> bool:
        """Whether all iterations that are not over at ``time`` have the same edges."""
        if not self.nodes:
            return True
        left = (self.end[self.low : self.high] > time).reshape(self.trips, self.nodes)
        first = int(np.argmax(left.any(axis=1))) if left.any() else self.trips - 1
        pointer = self.actor.ptr[self.low : self.high + 1]
        last = self._edges(self.trips - 1, pointer)
        return all(
            all(np.array_equal(a, b) for a, b in zip(self._edges(i, pointer), last, strict=True))
            for i in range(first, self.trips - 1)
        )

    def _edges(self, iteration: int, pointer: Ints) -> tuple[Ints, Ints]:
        """Pointer and producers of one iteration, relative to it; nodes before the loop as they
        are, below any relative number."""
        at = pointer[iteration * self.nodes : (iteration + 1) * self.nodes + 1]
        deps = self.actor.deps[at[0] : at[-1]]
        inside = deps >= self.low
        shifted = deps - self.low - iteration * self.nodes
        far = -(self.high - self.low) - 1
        return at - at[0], np.where(inside, shifted, far - deps)
