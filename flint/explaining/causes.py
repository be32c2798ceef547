"""Why a step takes as long as it does: ranked causes, and how long it would take without each.

The idea: whatever is on the critical path is a cause, but without it the step would only shrink
until another chain of work is the longest.  So each cause is removed, the step is simulated again,
and the difference is its gain.  Nothing else changes: a collective that takes no time still waits
for all of its members.

    causes_of(named, path, met)[0].gain_seconds
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.execution.node_types import NodeType
from flint.explaining.critical_path import CriticalPath, Part
from flint.explaining.meetings import Meetings
from flint.explaining.named_parts import NamedParts, Sort
from flint.graph.graph import Ints
from flint.simulation.actor_columns import Actor
from flint.simulation.durations import TICKS_PER_SECOND
from flint.simulation.machine import run
from flint.simulation.playing import Played

#: Causes with a smaller share of the step are not tried.
LEAST_SHARE: Final = 0.001
#: The number of sources named for each cause.
_SOURCES: Final = 5
_MOST_SOURCES: Final = 20_000

LAUNCHES: Final = "the host, which launches ops one by one"
WAITING: Final = "waiting for other ranks"


@dataclass(frozen=True, slots=True)
class SourceTime:
    """The part of a cause that is due to one line of the user's code, one layer or one op.

    Attributes:
        source: "train.py:31 (mlp, backward)", or the op if the line is unknown.
        seconds: time on the critical path.
        count: number of pieces of the path.
    """

    source: str
    seconds: float
    count: int


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that takes part of the step's time.

    Attributes:
        name: what it is.
        sort: kernel, communication, host, gap or waiting.
        seconds: time on the critical path; for waiting, the mean over ranks.
        share: share of the step.
        step_seconds: the step's time if the cause took no time.
        gain_seconds: how much shorter the step would be.
        sources: largest first.
        hidden_sources: number of further sources.
    """

    name: str
    sort: str
    seconds: float
    share: float
    step_seconds: float
    gain_seconds: float
    sources: tuple[SourceTime, ...]
    hidden_sources: int


def causes_of(
    named: NamedParts,
    path: CriticalPath,
    met: Meetings,
    traced: NDArray[np.bool_],
    launches: int = 0,
) -> tuple[Cause, ...]:
    """All causes, largest gain first.

    Args:
        named: parts of the step.
        path: the critical path.
        met: which ranks waited for which.
        traced: actors whose work is known, shape [actors].
        launches: ticks that the host takes to launch everything: no step is shorter.
    """
    played = named.played
    device = played.happened.ticks
    step = max(device, launches)
    label = np.array(
        [
            (named.gap if part == Part.GAP else named.work)[actor][node]
            for actor, node, part in zip(
                path.actor.tolist(), path.node.tolist(), path.part.tolist(), strict=True
            )
        ],
        np.int64,
    )
    spent = np.bincount(label, weights=path.ticks, minlength=len(named.names))
    found = []
    for number in np.argsort(-spent, kind="stable").tolist():
        ticks = int(spent[number])
        if ticks <= LEAST_SHARE * step:
            break
        name = named.names[number]
        without = max(_without(named, number), launches)
        sources, hidden = _sources(named, path, np.flatnonzero(label == number))
        found.append(_cause(name.text, name.sort, ticks, step, without, sources, hidden))
    waited = waiting_share(played, met.waited, traced)
    if waited > LEAST_SHARE * step:
        sources, hidden = _waits(named, met, traced)
        balanced = max(_balanced(played, met, traced), launches)
        found.append(_cause(WAITING, Sort.WAITING, waited, step, balanced, sources, hidden))
    if step - device > LEAST_SHARE * step:
        found.append(_cause(LAUNCHES, Sort.HOST, step - device, step, device, (), 0))
    return tuple(sorted(found, key=lambda item: (-item.gain_seconds, -item.seconds, item.name)))


def waiting_share(played: Played, ticks: Ints, traced: NDArray[np.bool_]) -> float:
    """The mean of a value per actor over the ranks that are known."""
    ranks = np.array([info.ranks for info in played.everyone.info]) * traced
    return float((ticks * ranks).sum() / ranks.sum()) if ranks.any() else 0.0


def _cause(
    name: str,
    sort: Sort,
    ticks: float,
    step: int,
    without: float,
    sources: tuple[SourceTime, ...],
    hidden: int,
) -> Cause:
    return Cause(
        name=name,
        sort=str(sort),
        seconds=ticks / TICKS_PER_SECOND,
        share=ticks / step,
        step_seconds=without / TICKS_PER_SECOND,
        gain_seconds=(step - without) / TICKS_PER_SECOND,
        sources=sources,
        hidden_sources=hidden,
    )


def _without(named: NamedParts, number: int) -> int:
    """Ticks of the step if the parts with that name took no time."""
    played = named.played
    changed = []
    for index, actor in enumerate(played.everyone.columns):
        ticks, delay = actor.ticks, actor.delay
        ticks = np.where((named.work[index] == number) & (ticks > 0), 0, ticks)
        if delay is not None:
            delay = np.where((named.gap[index] == number) & (delay > 0), 0, delay)
        changed.append(replace(actor, ticks=ticks, delay=delay))
    return _again(played, changed)


def _again(played: Played, actors: Sequence[Actor]) -> int:
    return run(actors, played.everyone.members).ticks


def _balanced(played: Played, met: Meetings, traced: NDArray[np.bool_]) -> float:
    """Ticks of the step if no rank waited and all ranks took the average time.

    Each kind of rank is simulated alone: its collectives take their time without waiting, and
    messages have already arrived.
    """
    alone = []
    for number, actor in enumerate(played.everyone.columns):
        begin, end = played.happened.start[number], played.happened.end[number]
        meets = actor.types == NodeType.COLL
        receives = actor.types == NodeType.RECV
        free = np.zeros(len(actor), np.bool_) if actor.free is None else actor.free
        ticks = np.where(meets & free, end - begin, actor.ticks)
        for row in np.flatnonzero(meets & ~free).tolist():
            other = met.partner.get((number, row), (number, row))
            ticks[row] = max(ticks[row], played.everyone.columns[other[0]].ticks[other[1]])
        alone.append(
            replace(
                actor,
                types=np.where(receives, NodeType.COMP, actor.types).astype(np.int8),
                ticks=np.where(receives, 0, ticks),
                free=free | receives,
                delay=np.zeros(len(actor), np.int64) if actor.delay is None else actor.delay,
            )
        )
    happened = run(alone, [1] * len(played.everyone.members))
    ends = np.array([int(end.max(initial=0)) for end in happened.end], np.int64)
    return waiting_share(played, ends, traced)


def _sources(
    named: NamedParts, path: CriticalPath, pieces: Ints
) -> tuple[tuple[SourceTime, ...], int]:
    chosen = pieces[np.argsort(-path.ticks[pieces], kind="stable")[:_MOST_SOURCES]].tolist()
    return _summed(
        (named.source(int(path.actor[i]), int(path.node[i])), int(path.ticks[i])) for i in chosen
    )


def _waits(
    named: NamedParts, met: Meetings, traced: NDArray[np.bool_]
) -> tuple[tuple[SourceTime, ...], int]:
    """Where ranks wait: the mean over ranks, by communication."""
    ranks = sum(info.ranks for i, info in enumerate(named.played.everyone.info) if traced[i])
    found = []
    for number, info in enumerate(named.played.everyone.info):
        if traced[number]:
            alone = met.alone[number]
            for row in np.argsort(-alone)[:_MOST_SOURCES].tolist():
                if alone[row]:
                    part = alone[row] * info.ranks / ranks
                    found.append((named.source(number, row), part))
    return _summed(found)


def _summed(found: Iterable[tuple[str, float]]) -> tuple[tuple[SourceTime, ...], int]:
    sums: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for source, ticks in found:
        sums[source] += ticks
        counts[source] += 1
    ordered = sorted(sums, key=lambda source: -sums[source])
    shown = tuple(
        SourceTime(source, sums[source] / TICKS_PER_SECOND, counts[source])
        for source in ordered[:_SOURCES]
    )
    return shown, max(0, len(ordered) - _SOURCES)
