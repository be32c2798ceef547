"""Steady state: when a run is in the same state as before, only some periods further on.

The idea: if the machine's state at time t2 is that at t1, only p periods further on in every
repeating part, then p more periods before the end would repeat what happened from t1 to t2, and
delay everything later by t2 - t1.  This is *checked*, not assumed.  For every actor, the check
compares the first node that has not ended; for the nodes from there to the last that has begun,
whether they have begun, how long ago, and how long they still run; and that all nodes from there on
have the same edges, counted in periods.  Nothing of the last p periods may have begun at t2,
because nodes after them could then have begun too.

    steady([cut], everyone, run(...))       # Steady: from when to when, over how many periods

This comparison is sufficient: which nodes are ready follows from which have ended, and with one
chain of communications per slot at most one of them waits for its partners.  Views of earlier
values take no time and run far ahead; as they delay nothing, it is not compared whether they have
ended.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flint.execution.node_types import NodeType
from flint.graph.graph import Ints
from flint.mesh.ragged import row_of_entry
from flint.simulation.actors import Actors
from flint.simulation.machine import Actor, Run

_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a program that was shortened.

    Attributes:
        program: its number.
        first: number of its first instance.
        instances: of one period.
        periods: number of remaining periods.
        rate: number of periods per period of the slowest part.
    """

    program: int
    first: int
    instances: int
    periods: int
    rate: int


@dataclass(frozen=True, eq=False, slots=True)
class Early:
    """Nodes of an actor that take no time and wait for nothing, so that it does not matter when
    they ended.

    Attributes:
        all: whether each node is one, shape [nodes].
        again: the same nodes within the periods that happen again.
    """

    all: NDArray[np.bool_]
    again: Ints


@dataclass(frozen=True, eq=False, slots=True)
class Repeat:
    """What happened in ``start < time <= end`` happens ``times`` more times.

    Attributes:
        early: per actor, nodes that happen again regardless of when they ended.
    """

    start: int
    end: int
    times: int
    early: tuple[Early, ...] = ()

    def nodes(self, actor: int, ends: Ints) -> NDArray[np.bool_]:
        """Which nodes of an actor happen again.

        Args:
            actor: its number.
            ends: when its nodes end, shape [nodes].
        """
        found: NDArray[np.bool_] = (ends > self.start) & (ends <= self.end)
        if self.early:
            found &= ~self.early[actor].all
            found[self.early[actor].again] = True
        return found


@dataclass(frozen=True, eq=False, slots=True)
class Steady:
    """A state that recurred.

    Attributes:
        start, end: when it occurred.
        periods: periods of the slowest part in between.
        early: as in ``Repeat``.
    """

    start: int
    end: int
    periods: int
    early: tuple[Early, ...] = ()

    def times(self, left_out: int) -> Repeat:
        """What happens again if a number of periods of the slowest part, a multiple, were left
        out.
        """
        return Repeat(self.start, self.end, left_out // self.periods, self.early)


def steady(cuts: Sequence[Cut], everyone: Actors, happened: Run) -> Steady | None:
    """When the state recurred, after the fewest periods and as early as possible.

    Args:
        cuts: the parts that repeat together, at most one of a program.
        everyone: the actors.
        happened: what they did.
    """
    of_program = {cut.program: cut for cut in cuts}
    views = [
        _View(of_program.get(info.program), actor, info.emission.instance, start, end)
        for actor, info, start, end in zip(
            everyone.columns, everyone.info, happened.start, happened.end, strict=True
        )
    ]
    if not all(view.even for view in views):
        return None
    slowest = min((view for view in views if view.step), key=lambda view: view.units, default=None)
    if slowest is None:
        return Steady(0, 0, 1)  # nothing in the periods runs
    number = next(i for i, view in enumerate(views) if view is slowest)
    program = everyone.info[number].program
    alike = [v for v, i in zip(views, everyone.info, strict=True) if i.program == program]
    times: Ints = np.max([view.over() for view in alike], axis=0)
    states = list(zip(*(view.states(times) for view in views), strict=True))
    last: dict[Hashable, int] = {}
    pairs: list[tuple[int, int]] = []
    for unit, state in enumerate(states):
        if None not in state:
            if state in last:
                pairs.append((unit - last[state], last[state]))
            last[state] = unit
    for period, before in sorted(pairs):
        start, end = int(times[before]), int(times[before + period])
        if all(view.regular(start, end, period) for view in views):
            return Steady(start, end, period, tuple(view.again(period) for view in views))
    return None


def _digest(*columns: Ints) -> bytes:
    """A digest of columns: many states are kept, and some of them have many open nodes."""
    found = blake2b(digest_size=16)
    for column in columns:
        found.update(column.tobytes())
    return found.digest()


def _early(actor: Actor, low: int) -> NDArray[np.bool_]:
    """Kernels from ``low`` on that take no time and wait only for each other and for nodes before
    ``low``, shape [nodes].
    """
    early: NDArray[np.bool_] = (actor.types == NodeType.COMP) & (actor.ticks == 0)
    early[:low] = False
    consumer = row_of_entry(actor.ptr)
    waits = actor.deps >= low
    consumer, producer = consumer[waits], actor.deps[waits]
    while True:
        held = consumer[early[consumer] & ~early[producer]]
        if not len(held):
            return early
        early[held] = False


class _View:
    """What one actor does inside and outside the repeating part, if its program has one.

    Attributes:
        even: whether all periods have the same number of nodes.
        step: number of nodes per period of the slowest part, 0 for none.
        units: how many times there are that many nodes.
    """

    def __init__(
        self, cut: Cut | None, actor: Actor, instance: Ints, start: Ints, end: Ints
    ) -> None:
        self.actor, self.start, self.end = actor, start, end
        self.even, self.step, self.units = True, 0, 0
        self.low = self.high = 0
        if cut is not None:
            bounds = cut.first + cut.instances * np.arange(cut.periods + 1, dtype=np.int64)
            places = np.searchsorted(instance, bounds)
            each = int(places[1] - places[0])
            self.even = bool((np.diff(places) == each).all())
            self.low, self.high = int(places[0]), int(places[-1])
            self.step = each * cut.rate
            self.units = cut.periods // cut.rate
        self.early = _early(actor, self.low)
        # When all nodes so far have ended, and when the first of the later ones begins.
        self.ended = np.maximum.accumulate(np.where(self.early, -1, end))
        begins = np.where(self.early, _NEVER, start)
        # Nodes after the part may run ahead of it once: then they have ended at all these times.
        behind = np.zeros(len(start), np.bool_)
        behind[self.high :] = self.step > 0
        behind &= ~self.early
        self.behind = np.sort(start[behind]), np.sort(end[behind])
        begins[behind] = _NEVER
        self.begun = np.minimum.accumulate(begins[::-1])[::-1]

    def over(self) -> Ints:
        """When each unit, and all before it, has ended, shape [units]."""
        ends = self.low + self.step * np.arange(1, self.units + 1, dtype=np.int64)
        found: Ints = self.ended[ends - 1]
        return found

    def window(self, times: Ints) -> tuple[Ints, Ints]:
        """The first node that has not ended at each time, and the first after which none has
        begun.
        """
        low = np.searchsorted(self.ended, times, side="right")
        high = np.searchsorted(self.begun, times, side="right")
        return low, np.maximum(low, high)

    def states(self, times: Ints) -> list[Hashable]:
        """The state at each time, one unit after another; None if it is not within a part."""
        found: list[Hashable] = []
        low, high = self.window(times)
        begun, over = (np.searchsorted(moments, times, side="right") for moments in self.behind)
        for unit, (time, begin, stop, ahead, done) in enumerate(
            zip(*(item.tolist() for item in (times, low, high, begun, over)), strict=True)
        ):
            outside = begin < self.low or stop > self.high or ahead != done
            if outside if self.step else begin < stop:
                found.append(None)
                continue
            start, end = self.start[begin:stop], self.end[begin:stop]
            early = self.early[begin:stop]
            waits, ended = (start > time) & ~early, (end <= time) | early
            age = np.where(waits | ended, 0, start - time)
            left = np.where(waits, -1, np.where(ended, 0, end - time))
            found.append((begin - unit * self.step, ahead, _digest(age, left)))
        return found

    def again(self, period: int) -> Early:
        """The early nodes, and those of the last units.

        Of the last units, because nodes that wait for the period before are early in the first one,
        too.
        """
        begin = self.high - period * self.step
        return Early(self.early, begin + np.flatnonzero(self.early[begin : self.high]))

    def regular(self, start: int, end: int, period: int) -> bool:
        """Whether all nodes that have not ended at ``start`` are equal to those ``period`` units
        further on, and none of the last ``period`` units has begun at ``end``.
        """
        shift = period * self.step
        if not shift:
            return True
        low, high = self.window(np.array([start, end], np.int64))
        first, stop = int(low[0]), self.high - shift
        if high[1] > stop:
            return False
        actor = self.actor
        columns: list[NDArray[Any] | None] = [
            actor.types, actor.ticks, actor.slot, actor.delay, actor.free,
        ]  # fmt: skip
        return all(
            column is None or np.array_equal(column[first:stop], column[first + shift : self.high])
            for column in columns
        ) and all(
            np.array_equal(one, other)
            for one, other in zip(
                self._edges(first, stop, first),
                self._edges(first + shift, self.high, first + shift),
                strict=True,
            )
        )

    def _edges(self, first: int, stop: int, since: int) -> tuple[NDArray[np.int64], ...]:
        """The edges between the nodes from ``since`` on, relative to it."""
        pointer = self.actor.ptr[first : stop + 1]
        deps = self.actor.deps[pointer[0] : pointer[-1]] - since
        waits = row_of_entry(pointer - pointer[0])
        return waits[deps >= 0], deps[deps >= 0]
