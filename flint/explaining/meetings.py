"""Which ranks met in a simulated step, when each arrived, and which kept the others waiting.

The idea: a collective begins when its last member has arrived.  If an earlier member does nothing
else in between, it waits for the one that arrives last.  A rank that waits for a message waits
until its sender begins to send.

    met = meetings_of(played)
    met.waited[actor]           # ticks in which these ranks waited for others and did nothing else
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.execution.node_types import NodeType
from flint.mesh.ragged import Ints, row_of_entry
from flint.simulation.actor_columns import Actor
from flint.simulation.playing import Played
from flint.simulation.spans import inside, union


@dataclass(frozen=True, eq=False, slots=True)
class Ready:
    """When the nodes of an actor were able to begin.

    Attributes:
        last: the dependency of each node that ended last, -1 for none, shape [nodes].
        over: when all its dependencies had ended, ticks, shape [nodes].
        before: the previous node in its slot, -1 for none, shape [nodes].
        came: when it arrived: its delay had passed and its slot was free, ticks, shape [nodes].
    """

    last: Ints
    over: Ints
    before: Ints
    came: Ints


@dataclass(frozen=True, eq=False, slots=True)
class Meetings:
    """Collectives and messages of a step.

    Attributes:
        ready: the ``Ready`` of each actor.
        partner: (actor, node) -> (actor, node): for a collective, the member that arrived last; for
            a RECV, its SEND.
        waited: ticks in which the ranks of each actor waited for others and did nothing else, shape
            [actors].
        blamed: ticks of this that are due to each actor because it arrived last, times the ranks
            that waited, shape [actors].
        alone: ticks of this at each node of each actor, shape [nodes].
    """

    ready: list[Ready]
    partner: dict[tuple[int, int], tuple[int, int]]
    waited: Ints
    blamed: Ints
    alone: list[Ints]


def meetings_of(played: Played) -> Meetings:
    """The collectives and messages of a step."""
    actors, happened = played.everyone.columns, played.happened
    ready = [_ready(actor, happened.start[i], happened.end[i]) for i, actor in enumerate(actors)]
    partner: dict[tuple[int, int], tuple[int, int]] = {}
    waiting = [np.zeros(len(actor), np.int64) for actor in actors]
    shared = np.array(played.everyone.members, np.int64) > 1
    collective = []
    for actor in actors:
        chosen = actor.types == NodeType.COLL
        chosen[chosen] = shared[actor.channel[chosen]]
        collective.append(chosen)
    members = _numbered(played, collective, happened.start)
    for rows in members.values():
        last = max(rows, key=lambda item: ready[item[0]].came[item[1]])
        for number, row in rows:
            partner[number, row] = last
            begin = int(happened.start[number][row])
            waiting[number][row] = max(0, begin - int(ready[number].came[row]))
    sends = _numbered(played, [a.types == NodeType.SEND for a in actors], happened.end)
    receives = _numbered(played, [a.types == NodeType.RECV for a in actors], happened.start)
    for key, rows in receives.items():
        for (number, row), sender in zip(rows, sends.get(key, ()), strict=False):
            partner[number, row] = sender
            begin, sent = happened.start[number][row], happened.start[sender[0]][sender[1]]
            waiting[number][row] = max(0, int(sent) - int(begin))
    waited, blamed = np.zeros(len(actors), np.int64), np.zeros(len(actors), np.int64)
    alone = [
        _alone(actor, happened.start[number], happened.end[number], waiting[number])
        for number, actor in enumerate(actors)
    ]
    for number, ticks in enumerate(alone):
        waited[number] = ticks.sum()
        for row in np.flatnonzero(ticks).tolist():
            last = partner[number, row]
            blamed[last[0]] += ticks[row] * played.everyone.info[number].ranks
    return Meetings(ready, partner, waited, blamed, alone)


def _ready(actor: Actor, start: Ints, end: Ints) -> Ready:
    """When nodes were able to begin."""
    count = len(actor)
    last, over = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    if len(actor.deps):
        waits = row_of_entry(actor.ptr)
        order = np.lexsort((end[actor.deps], waits))
        final = np.append(waits[order][1:] != waits[order][:-1], True)
        last[waits[order][final]] = actor.deps[order][final]
        over[waits[order][final]] = end[actor.deps][order][final]
    before = np.full(count, -1, np.int64)
    free = np.zeros(count, np.bool_) if actor.free is None else actor.free
    slot = np.zeros(count, np.int64) if actor.slot is None else actor.slot
    lane = np.where(actor.types == NodeType.COMP, -1, slot)
    taken = np.flatnonzero(~free & (actor.types != NodeType.RECV))
    order = taken[np.lexsort((taken, end[taken], start[taken], lane[taken]))]
    same = lane[order][1:] == lane[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    late = np.zeros(count, np.int64) if actor.delay is None else np.maximum(actor.delay, 0)
    came = over + late
    followed = before >= 0
    came[followed] = np.maximum(came[followed], end[before[followed]])
    return Ready(last, over, before, np.minimum(came, start))


def _numbered(
    played: Played, chosen: list[NDArray[np.bool_]], time: tuple[Ints, ...]
) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """(channel, occurrence) -> the nodes that meet there; an actor's nodes are ordered by these
    times.
    """
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, actor in enumerate(played.everyone.columns):
        rows = np.flatnonzero(chosen[number])
        channel = actor.channel[rows]
        order = np.lexsort((rows, time[number][rows], channel))
        rows, channel = rows[order], channel[order]
        first = np.searchsorted(channel, channel)
        nth = np.arange(len(rows)) - first
        for key, row in zip(zip(channel.tolist(), nth.tolist(), strict=True), rows.tolist(),
                            strict=True):  # fmt: skip
            found.setdefault(key, []).append((number, row))
    return found


def _alone(actor: Actor, start: Ints, end: Ints, waiting: Ints) -> Ints:
    """Ticks that each node waits while nothing else of its rank runs or waits already."""
    works = (actor.types != NodeType.RECV) & (end > start)
    receives = actor.types == NodeType.RECV
    rows = np.flatnonzero(waiting)
    begin = np.where(receives, start, start - waiting)[rows]
    until = begin + waiting[rows]
    order = np.lexsort((until, begin))
    rows, begin, until = rows[order], begin[order], until[order]
    reached = np.maximum.accumulate(until) if len(until) else until
    begin = np.maximum(begin, np.append(0, reached[:-1]) if len(reached) else begin)
    found = np.zeros(len(actor), np.int64)
    covered = union(start[works], end[works])
    length = np.maximum(until - begin, 0)
    found[rows] = np.where(length > 0, length - (inside(covered, until) - inside(covered, begin)),
                           0)  # fmt: skip
    return found
