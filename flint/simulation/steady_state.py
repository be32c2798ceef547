"""Steady state: when a run is in the same state as before, only some periods further on.

The idea: if the machine's state at time t2 is that at t1, only p periods further on in every
repeating part, then p more periods before the end would repeat what happened from t1 to t2, and
delay everything later by t2 - t1.  This is *checked*, not assumed.  For every actor, the check
compares the first node that has not ended; for the nodes from there to the last that has begun,
whether they have begun, how long ago, and how long they still run; and that all nodes from there on
have the same edges, counted in periods.  Nothing of the last p periods may have begun at t2,
because nodes after them could then have begun too.

    steady([cut], everyone, run(...))       # Steady: from when to when, over how many periods

Only actors that can influence each other are compared: others have periods of their own.  An
outline of the states is compared first, for all times at once; whole states only where it recurs,
because actors that run far ahead of others have long ones.

This comparison is sufficient: which nodes are ready follows from which have ended, and with one
chain of communications per slot at most one of them waits for its partners.  Views of earlier
values take no time and run far ahead; as they delay nothing, it is not compared whether they have
ended.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import Ints
from flint.simulation.actor_states import Cut, Early, Moments, View
from flint.simulation.actors import Actors
from flint.simulation.machine import Run

#: Numbers are mixed by multiples of this, modulo 2**64.
_ODD: Final = np.int64(0x9E3779B97F4A7C15 - 2**64)


@dataclass(frozen=True, eq=False, slots=True)
class Repeat:
    """What happened in ``start < time <= end`` happens ``times`` more times.

    Attributes:
        early: the actors that it happens to, with the nodes that happen again regardless of when
            they ended.
    """

    start: int
    end: int
    times: int
    early: Mapping[int, Early]

    def nodes(self, actor: int, ends: Ints) -> NDArray[np.bool_]:
        """Which nodes of an actor happen again.

        Args:
            actor: its number.
            ends: when its nodes end, shape [nodes].
        """
        found: NDArray[np.bool_] = (ends > self.start) & (ends <= self.end)
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
    early: Mapping[int, Early]

    def times(self, left_out: int) -> Repeat:
        """What happens again if a number of periods of the slowest part, a multiple, were left
        out.
        """
        return Repeat(self.start, self.end, left_out // self.periods, self.early)


def steady(
    cuts: Sequence[Cut],
    everyone: Actors,
    happened: Run,
    among: Collection[int] | None = None,
) -> Steady | None:
    """When the state recurred, after the fewest periods and as early as possible.

    Args:
        cuts: the parts that repeat together, at most one of a program.
        everyone: the actors.
        happened: what they did.
        among: the actors that those of the parts can influence; by default all.
    """
    of_program = {cut.program: cut for cut in cuts}
    views = {
        number: View(
            of_program.get(info.program), everyone.columns[number], info.emission.instance,
            happened.start[number], happened.end[number],
        )
        for number, info in enumerate(everyone.info)
        if among is None or number in among
    }  # fmt: skip
    if not all(view.even for view in views.values()):
        return None
    slowest = min((n for n, v in views.items() if v.step), key=lambda n: views[n].units, default=-1)
    if slowest < 0:  # nothing in the periods runs
        return Steady(0, 0, 1, {number: view.again(0) for number, view in views.items()})
    program = everyone.info[slowest].program
    alike = [view for n, view in views.items() if everyone.info[n].program == program]
    times: Ints = np.max([view.over() for view in alike], axis=0)
    moments = [view.at(times) for view in views.values()]
    last: dict[Hashable, int] = {}
    pairs: list[tuple[int, int]] = []
    for unit in _recurring(moments):
        state = tuple(moment.state(unit) for moment in moments)
        if state in last:
            pairs.append((unit - last[state], last[state]))
        last[state] = unit
    for period, before in sorted(pairs):
        start, end = int(times[before]), int(times[before + period])
        if all(view.regular(start, end, period) for view in views.values()):
            again = {number: view.again(period) for number, view in views.items()}
            return Steady(start, end, period, again)
    return None


def _recurring(moments: Sequence[Moments]) -> list[int]:
    """Units whose states, of all actors, may be those of other units."""
    inside = np.logical_and.reduce([moment.inside for moment in moments])
    units = np.flatnonzero(inside)
    mixed = np.zeros(len(units), np.int64)
    for moment in moments:
        for column in moment.outline():
            mixed = mixed * _ODD + column[units]
    _, place, count = np.unique(mixed, return_inverse=True, return_counts=True)
    return [int(unit) for unit in units[count[place] > 1]]
