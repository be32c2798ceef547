"""The critical path: the chain of work, gaps and launches that a step's time is made of.

The idea: start from the node that ended last and find what it waited for: the last of its
dependencies to end, the previous node in its slot, the last member of its collective to arrive, or
the sender of its message.  The time in between is its own delay.  The parts add up to the step, to
the tick.

    path = critical_path(played, meetings_of(played))
    path.ticks[path.part == Part.GAP].sum()
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from flint.execution.node_types import NodeType
from flint.explaining.meetings import Meetings
from flint.mesh.ragged import Ints
from flint.simulation.playing import Played


class Part(IntEnum):
    """Kinds of pieces of the path."""

    WORK = 0
    GAP = 1


@dataclass(frozen=True, eq=False, slots=True)
class CriticalPath:
    """Pieces of a step, in time.

    Attributes:
        actor, node: what each piece belongs to, shape [pieces].
        part: ``Part``; a gap is before its node, shape [pieces].
        start, ticks: when it begins and how long it takes, shape [pieces].
    """

    actor: Ints
    node: Ints
    part: NDArray[np.int8]
    start: Ints
    ticks: Ints

    def __len__(self) -> int:
        return len(self.node)


def critical_path(played: Played, met: Meetings) -> CriticalPath:
    """The path to the node that ended last."""
    start, end = played.happened.start, played.happened.end
    actors = played.everyone.columns
    actor = max(range(len(actors)), key=lambda number: int(end[number].max(initial=-1)))
    if not len(end[actor]):
        nothing = np.zeros(0, np.int64)
        return CriticalPath(nothing, nothing, nothing.astype(np.int8), nothing, nothing)
    row = int(end[actor].argmax())
    time = int(end[actor][row])
    pieces: list[tuple[int, int, int, int, int]] = []

    def add(part: Part, begin: int) -> None:
        nonlocal time
        begin = max(begin, 0)
        if begin < time:
            pieces.append((actor, row, int(part), begin, time - begin))
            time = begin

    for _ in range(2 * sum(len(item) for item in actors) + 1):
        partner = met.partner.get((actor, row))
        if partner is not None and actors[actor].types[row] == NodeType.RECV:
            if end[partner[0]][partner[1]] > start[actor][row]:
                actor, row = partner
                continue
        elif partner is not None:
            add(Part.WORK, int(start[actor][row]))
            actor, row = partner
        add(Part.WORK, int(start[actor][row]))
        ready = met.ready[actor]
        before, last = int(ready.before[row]), int(ready.last[row])
        if before >= 0 and end[actor][before] >= max(time, int(ready.over[row])):
            row = before
        elif last >= 0:
            add(Part.GAP, int(ready.over[row]))
            row = last
        else:
            add(Part.GAP, 0)
            break
        if not time:
            break
    columns = np.array(pieces[::-1], np.int64).reshape(-1, 5).T
    return CriticalPath(columns[0], columns[1], columns[2].astype(np.int8), columns[3], columns[4])
