"""The search for ranks that do the same: recorded ranks, and what follows for the others.

The idea: two ranks of every cell of the partition are recorded, along every mesh axis; where they
do not do the same, the axes along which they differ are found, or runs of ranks.

    search = Search((4, 2, 8), sign, evidence)
    search.record((0, 63))
    partition = search.divided(())       # after recording what it needs
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.frontends.torch.evidence import Evidence, Kinds, evidence_of
from flint.frontends.torch.ranks.partition import MOST_CELLS, Partition, crossed
from flint.frontends.torch.ranks.updates_only import updates_only

#: Close evidence that makes more cells than this tells nearly every rank apart: no explanation.
_MOST_CLOSE = 64

#: If more ranks than this are to be recorded, questions that matter to updates only are looked for.
_FEW = 16

#: Records ranks: rank -> its signature, equal for ranks that do the same.
Sign = Callable[[Sequence[int]], dict[int, str]]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Ranks that do the same.

    Attributes:
        representative: the rank that was recorded.
        ranks: mask over all ranks, shape [world].
    """

    representative: int
    ranks: NDArray[np.bool_]


class Search:
    """Ranks that have been recorded, and the conclusions for the others.

    Attributes:
        known: rank -> its signature.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        sign: Sign,
        evidence: Callable[[], Iterable[Evidence]],
        besides_updates: Callable[[int], str] | None = None,
    ) -> None:
        self.shape = shape
        self.world = math.prod(shape)
        self.known: dict[int, str] = {}
        self._sign = sign
        self._evidence = evidence
        self._closely = False
        self._besides_updates = besides_updates
        self._updates_only: set[Evidence] = set()

    def record(self, ranks: Iterable[int]) -> None:
        """Record those of some ranks that have not been recorded."""
        new = [rank for rank in dict.fromkeys(ranks) if rank not in self.known]
        if new:
            self.known.update(self._sign(new))

    def divided(self, places: Sequence[Evidence]) -> Partition:
        """Record ranks of every cell until they add no evidence; returns the partition."""
        while True:
            partition = crossed((*self._counting(), *places), self.world)
            wanted = self._wanted(partition)
            if not wanted:
                return partition
            if len(wanted) <= _FEW or not self._asks_of_updates(partition, set(wanted)):
                self.record(wanted)

    def _asks_of_updates(self, partition: Partition, wanted: set[int]) -> bool:
        """Whether some questions turn out to matter to updates only: then they do not count.

        Ranks of all cells that no fact distinguishes are recorded, for the fact with most cells.
        """
        if self._besides_updates is None or self._updates_only:
            return False
        facts = _members(partition.facts)
        ranks = max(facts, key=lambda fact: len(np.unique(partition.cells[fact]))).tolist()
        self.record(rank for rank in ranks if rank in wanted)
        seen = [rank for rank in ranks if rank in self.known]
        self._updates_only = updates_only(self._counting(), seen, self._besides_updates)
        return bool(self._updates_only)

    def counts_all(self) -> bool:
        """Count all questions again; returns whether some did not."""
        left_out, self._updates_only, self._besides_updates = self._updates_only, set(), None
        return bool(left_out)

    def looks_closely(self) -> bool:
        """Let close evidence count, too, if it distinguishes all recorded ranks that differ."""
        self._closely = True
        partition = crossed(self._counting(), self.world)
        few = partition.count <= _MOST_CLOSE
        self._closely = few and self.different(partition) is None
        return self._closely

    def _counting(self) -> Iterator[Evidence]:
        return (
            item
            for item in self._evidence()
            if (self._closely or not item.close) and item not in self._updates_only
        )

    def _does(self, rank: int) -> str:
        """What counts of what a recorded rank does."""
        if self._updates_only and self._besides_updates is not None:
            return self._besides_updates(rank)
        return self.known[rank]

    def _wanted(self, partition: Partition) -> list[int]:
        """Ranks of cells without two recorded ranks that differ along every mesh axis.

        Most questions have no effect.  Cells that only questions divide, and whose recorded ranks
        do the same, need two such ranks together, and one each.
        """
        wanted: list[int] = []
        cells = _members(partition.cells)
        for fact in _members(partition.facts):
            seen = [rank for rank in fact.tolist() if rank in self.known]
            parts = [cells[cell] for cell in np.unique(partition.cells[fact])]
            if len({self._does(rank) for rank in seen}) > 1:
                for part in parts:
                    wanted += _ends([rank for rank in seen if rank in part], part, self.shape)
                continue
            wanted += _ends(seen, fact, self.shape)
            wanted += [int(part[-1]) for part in parts if not np.isin(part, [*seen, *wanted]).any()]
        return wanted

    def different(self, partition: Partition) -> tuple[int, int] | None:
        """Two recorded ranks of one cell that do not do the same."""
        first: dict[int, int] = {}
        for rank in sorted(self.known):
            other = first.setdefault(int(partition.cells[rank]), rank)
            if self.known[other] != self.known[rank]:
                return other, rank
        return None

    def alike(self, partition: Partition, what: Callable[[int], str] | None) -> bool:
        """Whether recorded ranks of each cell are equal in something: they count as the first."""
        if what is None:
            return False
        first: dict[int, int] = {}
        firsts = {
            rank: first.setdefault(int(partition.cells[rank]), rank) for rank in sorted(self.known)
        }
        if any(what(rank) != what(one) for rank, one in firsts.items()):
            return False
        self.known = {rank: self.known[one] for rank, one in firsts.items()}
        return True

    def explained(self, partition: Partition) -> list[Behaviour]:
        """Behaviours, where the recorded ranks of each cell do the same."""
        owner: dict[str, int] = {}
        of_cell = np.zeros(partition.count, np.int64)
        for rank in sorted(self.known):
            of_cell[partition.cells[rank]] = owner.setdefault(self.known[rank], rank)
        owners = of_cell[partition.cells]
        return [Behaviour(rank, owners == rank) for rank in sorted(owner.values())]

    def narrowed(self, partition: Partition) -> Evidence:
        """Runs of ranks within cells, between changes in the behaviour of recorded ranks."""
        kinds = np.zeros(self.world, np.int64)
        for cell in range(partition.count):
            ranks = np.flatnonzero(partition.cells == cell)
            while True:
                seen = [at for at, rank in enumerate(ranks.tolist()) if rank in self.known]
                changes = [
                    (one, other)
                    for one, other in itertools.pairwise(seen)
                    if self.known[int(ranks[one])] != self.known[int(ranks[other])]
                ]
                middle = [(one + other) // 2 for one, other in changes if other > one + 1]
                if not middle or len(self.known) > MOST_CELLS:
                    break
                self.record(ranks[middle].tolist())
            starts = [other for _, other in changes]
            kinds[ranks] = np.searchsorted(starts, np.arange(len(ranks)), side="right")
        return evidence_of("runs of ranks", kinds)

    def changing_axes(self, partition: Partition) -> tuple[int, ...]:
        """Axes along which ranks of one cell differ, seen from the first and the last rank."""
        shape = self.shape
        lines: list[tuple[int, list[int]]] = []
        for axis, size in enumerate(shape):
            for base in (tuple(0 for _ in shape), tuple(size - 1 for size in shape)):
                steps = sorted({0, 1 % size, size // 2, size - 1})
                line = [rank_at((*base[:axis], at, *base[axis + 1 :]), shape) for at in steps]
                lines.append((axis, line))
        self.record(rank for _, line in lines for rank in line)  # all at once
        found = {axis for axis, line in lines if self._differ(line, partition.cells)}
        # For the first and the last place along these, the far end of the other ones.
        for first in (True, False):
            ends = (
                (0 if first else size - 1) if axis in found else size - 1
                for axis, size in enumerate(shape)
            )
            self.record([rank_at(tuple(ends), shape)])
        return tuple(sorted(found))

    def _differ(self, ranks: Iterable[int], cells: Kinds) -> bool:
        """Whether recorded ranks of one cell do different things."""
        signs: dict[int, set[str]] = {}
        for rank in ranks:
            signs.setdefault(int(cells[rank]), set()).add(self.known[rank])
        return any(len(item) > 1 for item in signs.values())


def _members(cells: Kinds) -> list[NDArray[np.int64]]:
    """The ranks of every cell, ascending."""
    order = np.argsort(cells, kind="stable")
    return np.split(order, np.cumsum(np.bincount(cells))[:-1])


def places_along(shape: tuple[int, ...], axes: Sequence[int]) -> tuple[Evidence, ...]:
    """The place along some axes of the mesh."""
    places = np.unravel_index(np.arange(math.prod(shape)), shape)
    return tuple(evidence_of(f"places along mesh axis {axis}", places[axis]) for axis in axes)


def _ends(seen: list[int], ranks: NDArray[np.int64], shape: tuple[int, ...]) -> list[int]:
    """Ranks to record in addition to some of a cell, for two that differ along every axis."""
    if seen and _spans(seen, ranks, shape):
        return []
    first, last = int(ranks[0]), int(ranks[-1])
    for one in (last, first):
        if seen and _spans([*seen, one], ranks, shape):
            return [one]
    return [rank for rank in dict.fromkeys((first, last)) if rank not in seen]


def _spans(seen: list[int], ranks: NDArray[np.int64], shape: tuple[int, ...]) -> bool:
    """Whether some ranks have two different places along every axis along which all ranks have."""
    some, every = (np.stack(np.unravel_index(np.array(item), shape)) for item in (seen, ranks))
    return bool((((every != every[:, :1]).any(1)) <= (some != some[:, :1]).any(1)).all())


def far_end(shape: tuple[int, ...]) -> int:
    """The far end along the first axis that has one, at the beginning of the others."""
    long = next((axis for axis, size in enumerate(shape) if size > 1), 0)
    return rank_at(tuple(size - 1 if axis == long else 0 for axis, size in enumerate(shape)), shape)


def rank_at(at: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """The rank at a place on a mesh."""
    return int(np.ravel_multi_index(at, shape))
