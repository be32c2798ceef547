"""Dependencies between units, and queues of units that are searched by time.

The idea: every edge leads from an earlier to a later issued unit, and from one that had ended to
one that began afterwards; all others are counted and left out.

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

#: Two clocks of a profiler agree to this many nanoseconds.
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
        issued, start: times of each, ascending.
        over: when each and all before it had ended.
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
    """Queue of each stream or thread, without units that run on none.

    Args:
        units: in order of issue.
        key: the queue of each, shape [units].
        chosen: units to include; all by default.
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
    """For each kernel that ran several messages, these messages in order of issue."""
    numbers = np.flatnonzero(units.collective & (units.stream != NO_STREAM))
    stream, start = units.stream[numbers], units.start[numbers]
    order = np.lexsort((numbers, start, stream))
    other = (np.diff(stream[order]) != 0) | (np.diff(start[order]) != 0)
    parts = np.split(numbers[order], np.flatnonzero(other) + 1)
    return [part.tolist() for part in parts if len(part) > 1]


class EdgeSet:
    """Edges, each once, and the collectives that other units wait for.

    A unit that waits for one message of a batch waits for the kernel, hence for all of them.

    Attributes:
        units: the units.
        start, end: times of each unit, ns; for messages of a batch those of their kernel.
        together: unit -> the batch that it is in.
        talks: which units belong to a communication library, exchanges or not (a barrier's kernel
            is not among an execution trace's collectives): they have both producers and consumers.
        kind: (before, after) -> ``EdgeKind``.
        awaited: collectives that other work waits for.
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
        """Add an edge unless the times contradict it; returns whether it now exists."""
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
        """Count an inference; zero adds no note."""
        if count:
            self.notes[text] += count

    def finish(self) -> Edges:
        """The columns."""
        pairs = np.array(list(self.kind), np.int64).reshape(-1, 2)
        kind = np.array(list(self.kind.values()), np.int8)
        order = np.lexsort((pairs[:, 0], pairs[:, 1]))
        return Edges(pairs[order, 0], pairs[order, 1], kind[order], dict(self.notes))
