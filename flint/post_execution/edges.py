"""Dependencies between units as they are found, and units as queues that are searched by time.

The idea: by every rule an edge leads from what was issued earlier to what was issued
later, and from what was over to what began then; anything else is counted and left out.

    edges.add(3, 7, EdgeKind.STREAM)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import EdgeKind
from flint.mesh.ragged import Ints
from flint.post_execution.units import NO_STREAM, Units, of_library

#: Two clocks of a profiler agree to so many nanoseconds.
JITTER = 2_000

CONTRADICTED = "dependencies that the measured times contradict: left out"


@dataclass(frozen=True, eq=False)
class Edges:
    """Dependencies between units without data.

    Attributes:
        before, after: units; ``before`` is always the smaller number.
        kind: ``EdgeKind``.
        notes: text -> count.
    """

    before: Ints
    after: Ints
    kind: NDArray[np.int8]
    notes: dict[str, int]


@dataclass(frozen=True, eq=False)
class Queue:
    """Units that are issued, begin and end one after another: a stream's or a thread's.

    Attributes:
        units: their numbers, ascending.
        issued, start: of each, ascending.
        over: when each and all before it were over.
    """

    units: Ints
    issued: Ints
    start: Ints
    over: Ints

    def issued_before(self, when: int) -> int:
        """The last unit issued before a moment, -1 for none."""
        place = int(np.searchsorted(self.issued, when, side="left")) - 1
        return int(self.units[place]) if place >= 0 else -1

    def issued_from(self, when: int) -> int:
        """The first unit issued at a moment or later, -1 for none."""
        place = int(np.searchsorted(self.issued, when, side="left"))
        return int(self.units[place]) if place < len(self.units) else -1


def queues_of(units: Units, key: Ints, chosen: NDArray[np.bool_] | None = None) -> dict[int, Queue]:
    """Queue of each stream or thread, without what runs on none.

    Args:
        units: in order of issue.
        key: the queue of each, shape [units].
        chosen: those that count; all by default.
    """
    kept = key != NO_STREAM if chosen is None else (key != NO_STREAM) & chosen
    numbers = np.flatnonzero(kept)
    numbers = numbers[np.argsort(key[numbers], kind="stable")]
    bounds = np.flatnonzero(np.diff(key[numbers], prepend=NO_STREAM, append=NO_STREAM))
    found = {}
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        members = numbers[low:high]
        found[int(key[members[0]])] = Queue(
            members,
            np.maximum.accumulate(units.issued[members]),
            units.start[members],
            np.maximum.accumulate(units.end[members]),
        )
    return found


def batches_of(units: Units) -> list[list[int]]:
    """Messages that one kernel ran, of each kernel that ran several, in order of issue."""
    numbers = np.flatnonzero(units.collective & (units.stream != NO_STREAM))
    stream, start = units.stream[numbers], units.start[numbers]
    order = np.lexsort((numbers, start, stream))
    other = (np.diff(stream[order]) != 0) | (np.diff(start[order]) != 0)
    parts = np.split(numbers[order], np.flatnonzero(other) + 1)
    return [part.tolist() for part in parts if len(part) > 1]


class EdgeSet:
    """Edges, each once, and the collectives that other units wait for.

    Who waits for one message of a batch waits for the kernel, hence for all of them.

    Attributes:
        units: what they are between.
        start, end: of each unit, ns; of messages of a batch those of their kernel.
        together: unit -> the batch that it is in.
        talks: which units are a communication library's, exchanges or not (a barrier's kernel is
            none of an execution trace's collectives): they have producers and consumers alike.
        kind: (before, after) -> ``EdgeKind``.
        awaited: collectives that some work waits for.
        notes: text -> count.
    """

    def __init__(self, units: Units, awaited: Set[int]) -> None:
        self.units = units
        self.start, self.end = units.start.tolist(), units.end.tolist()
        self.talks: NDArray[np.bool_] = units.collective | of_library(units)
        self.together: dict[int, list[int]] = {}
        for batch in batches_of(units):
            over = max(self.end[unit] for unit in batch)
            for unit in batch:
                self.end[unit] = over
                self.together[unit] = batch
        self.kind: dict[tuple[int, int], int] = {}
        self.awaited = set(awaited)
        self.notes: dict[str, int] = defaultdict(int)

    def add(self, before: int, after: int, kind: EdgeKind) -> bool:
        """Add an edge unless the times contradict it; says whether it is there now."""
        if before >= after or (self.units.timed and self.end[before] > self.start[after] + JITTER):
            self.notes[CONTRADICTED] += 1
            return False
        for unit in self.together.get(before, (before,)):
            if unit < after:
                self.kind.setdefault((unit, after), int(kind))
                if self.talks[unit] and not self.talks[after]:
                    self.awaited.add(unit)
        return True

    def note(self, text: str, count: int) -> None:
        """Count what was concluded; nothing is no note."""
        if count:
            self.notes[text] += count

    def finish(self) -> Edges:
        """The columns."""
        pairs = np.array(list(self.kind), np.int64).reshape(-1, 2)
        kind = np.array(list(self.kind.values()), np.int8)
        order = np.lexsort((pairs[:, 0], pairs[:, 1]))
        return Edges(pairs[order, 0], pairs[order, 1], kind[order], dict(self.notes))
