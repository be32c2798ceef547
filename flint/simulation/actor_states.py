"""The states of an actor at several times, to find out when one recurs.

A state is the first node that has not ended and, for the nodes from there to the last that has
begun, whether they have begun, how long ago, and how long they still run.  Nodes are counted from
the begin of the current period.

    view = View(cut, actor, instance, start, end)
    moments = view.at(view.over())      # when each period, and all before it, has ended
    moments.state(3) == moments.state(4)
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from flint.execution.node_types import NodeType
from flint.graph.graph import Ints
from flint.mesh.ragged import row_of_entry
from flint.simulation.actor_columns import Actor

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


class View:
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

    def at(self, times: Ints) -> Moments:
        """The actor at each time, one unit after another."""
        low, high = self.window(times)
        begun, over = (np.searchsorted(moments, times, side="right") for moments in self.behind)
        outside = (low < self.low) | (high > self.high) | (begun != over)
        inside = ~outside if self.step else low >= high
        return Moments(self, times, low, high, begun, inside)

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


@dataclass(frozen=True, eq=False, slots=True)
class Moments:
    """An actor at several times, one unit after another.

    Attributes:
        view: the actor.
        times: shape [units].
        low, high: the first node that has not ended, and the first after which none has begun.
        ahead: number of nodes after the part that have ended.
        inside: whether everything that is open belongs to the part.
    """

    view: View
    times: Ints
    low: Ints
    high: Ints
    ahead: Ints
    inside: NDArray[np.bool_]

    def outline(self) -> tuple[Ints, ...]:
        """What is equal where states are equal, and quickly found: each of shape [units]."""
        view, units = self.view, np.arange(len(self.times), dtype=np.int64)
        first = np.minimum(self.low, len(view.start) - 1)
        opened = (self.low < self.high) & ~view.early[first]
        left = np.where(opened & (view.start[first] <= self.times), view.end[first] - self.times, 0)
        return self.low - units * view.step, self.high - self.low, self.ahead, left

    def state(self, unit: int) -> Hashable:
        """The state at one of the times."""
        view, time = self.view, int(self.times[unit])
        begin, stop = int(self.low[unit]), int(self.high[unit])
        start, end, early = (column[begin:stop] for column in (view.start, view.end, view.early))
        waits, ended = (start > time) & ~early, (end <= time) | early
        age = np.where(waits | ended, 0, start - time)
        left = np.where(waits, -1, np.where(ended, 0, end - time))
        return begin - unit * view.step, int(self.ahead[unit]), _digest(age, left)
