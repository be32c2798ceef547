"""Which ranks do the same, from recordings of a few of them.

The idea: what a rank does depends on its place in the mesh along some axes (a pipeline's stages)
and not along others.  The first, the last and two other ranks are recorded; where they agree all
ranks run one program.  Where not, and where it is known at which places something changes (uneven
shards), ranks between any two such places are recorded.  Where that does not explain what was seen,
the axes along which something changes are found one by one, every place along those is recorded,
and ranks elsewhere are recorded to check the prediction.  A program may ask about its own rank
(``rank == 1``): ranks that get another answer than the recorded ones are recorded, too.

    behaviours((4, 2, 8), sign)       # sign(ranks) -> rank -> signature; here 4 stages
    [Behaviour(0, mask of 16 ranks), Behaviour(16, ...), ...]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError

#: More representatives than this are refused: each costs a recording.
MAX_REPRESENTATIVES = 256

#: Up to this many ranks are all recorded where what is asked about a rank is not seen.
FEW = 8

#: More ranks with different answers than this are not recorded for their answers alone.
_MOST_ANSWERS = 16

#: Records ranks: rank -> its signature, equal for ranks that do the same.
Sign = Callable[[Sequence[int]], dict[int, str]]


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Ranks that do the same.

    Attributes:
        representative: the one that was recorded.
        ranks: mask over all ranks, shape [world].
    """

    representative: int
    ranks: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Answers:
    """What is known of differences among ranks without recording them.

    Attributes:
        kinds: equal for ranks that get the same answers to what was asked, [world].
        unseen: whether something may have been asked that is not known.
    """

    kinds: NDArray[np.int64]
    unseen: bool = False


def behaviours(
    shape: tuple[int, ...],
    sign: Sign,
    breaks: Callable[[], Sequence[Iterable[int]]] | None = None,
    answers: Callable[[], Answers] | None = None,
) -> list[Behaviour]:
    """The distinct behaviours over a mesh.

    Args:
        shape: devices per mesh axis; rank is row-major.
        sign: records ranks; asked for several at once, and for each rank once.
        breaks: per mesh axis, places from which on ranks may do something else; asked after rank 0
            has been recorded.
        answers: what the ranks recorded so far asked about themselves; asked again after more.

    Raises:
        FlintError: too many distinct places, or a rank that breaks the pattern.
    """
    search = _Search(shape, sign)
    witnesses = (0, search.world - 1, _rank(tuple(size // 2 for size in shape), shape), _far(shape))
    search.record(witnesses)
    kinds = search.by_answers(answers) if answers is not None else None
    if len(set(search.known.values())) == 1:
        return [Behaviour(0, np.ones(search.world, bool))]
    if len(search.known) == search.world:
        return search.explained(np.arange(search.world))
    broken = (0, 0)
    for cells, both in search.evidence(kinds, breaks):
        found = search.attempt(cells, both=both)
        if isinstance(found, list):
            return found
        broken = found
    raise FlintError(
        f"rank {broken[1]:,} behaves differently from rank {broken[0]:,}, although both have the "
        f"same coordinates on the mesh axes {search.changing} along which ranks differ: its "
        "behaviour follows no pattern of mesh axes"
    )


class _Search:
    """Ranks that have been recorded, and what follows for the others.

    Attributes:
        known: rank -> its signature.
        changing: axes along which signatures change, once that is known.
    """

    def __init__(self, shape: tuple[int, ...], sign: Sign) -> None:
        self.shape = shape
        self.world = math.prod(shape)
        self.known: dict[int, str] = {}
        self.changing: tuple[int, ...] = ()
        self._sign = sign

    def record(self, ranks: Iterable[int]) -> None:
        """Record ranks that are not yet."""
        new = [rank for rank in dict.fromkeys(ranks) if rank not in self.known]
        if new:
            self.known.update(self._sign(new))

    def by_answers(self, answers: Callable[[], Answers]) -> NDArray[np.int64] | None:
        """Record ranks of every kind, until those ask nothing new: the kinds."""
        while True:
            current = answers()
            kinds: NDArray[np.int64]
            _, firsts, kinds = np.unique(current.kinds, return_index=True, return_inverse=True)
            if current.unseen and len(kinds) <= FEW:
                missing = [rank for rank in range(len(kinds)) if rank not in self.known]
            elif len(firsts) <= _MOST_ANSWERS or len(kinds) <= FEW:
                seen = {int(kinds[rank]) for rank in self.known}
                missing = [int(rank) for kind, rank in enumerate(firsts) if kind not in seen]
            else:
                return None
            if not missing:
                return kinds
            self.record(missing)

    def evidence(
        self,
        kinds: NDArray[np.int64] | None,
        breaks: Callable[[], Sequence[Iterable[int]]] | None,
    ) -> Iterator[tuple[NDArray[np.int64], bool]]:
        """Cells of ranks that may do the same, by one kind of evidence after the other.

        Yields:
            The number of each rank's cell, [world]; and whether of a cell ranks that differ along
            every axis must be recorded.
        """
        if kinds is not None and 1 < kinds.max() + 1 <= _MOST_ANSWERS:
            yield kinds, True
        hints = tuple(tuple(sorted(item)) for item in breaks()) if breaks is not None else ()
        if any(hints) and _count(hints) <= MAX_REPRESENTATIVES:
            yield _cells(self.shape, hints), True
        self._probe_axes()
        every = tuple(
            tuple(range(1, size)) if axis in self.changing else ()
            for axis, size in enumerate(self.shape)
        )
        if any(hints):
            mixed = tuple(hint or places for hint, places in zip(hints, every, strict=True))
            if _count(mixed) <= MAX_REPRESENTATIVES:
                yield _cells(self.shape, mixed), True
        count = _count(every)
        if count > MAX_REPRESENTATIVES:
            raise FlintError(
                f"ranks behave differently along mesh axes of {count:,} places together; at most "
                f"{MAX_REPRESENTATIVES} are recorded"
            )
        yield _cells(self.shape, every), False

    def attempt(self, cells: NDArray[np.int64], *, both: bool) -> list[Behaviour] | tuple[int, int]:
        """Behaviours if ranks of one cell do the same; or two of one that do not.

        Args:
            cells: number of each rank's, [world].
            both: of a cell, ranks that differ along every axis must have been recorded.
        """
        wanted: list[int] = []
        for cell in range(int(cells.max()) + 1):
            ranks = np.flatnonzero(cells == cell)
            seen = [rank for rank in self.known if cells[rank] == cell]
            if not seen or (both and not _spans(seen, ranks, self.shape)):
                wanted += _ends(seen, ranks, self.shape) if both else [int(ranks[0])]
        self.record(wanted)
        first: dict[int, int] = {}
        for rank in sorted(self.known):
            other = first.setdefault(int(cells[rank]), rank)
            if self.known[other] != self.known[rank]:
                return other, rank
        return self.explained(cells)

    def explained(self, cells: NDArray[np.int64]) -> list[Behaviour]:
        """Behaviours, where the recorded ranks of each cell do the same."""
        signature_of = {int(cells[rank]): known for rank, known in sorted(self.known.items())}
        first = {int(cells[rank]): rank for rank in sorted(self.known, reverse=True)}
        owner: dict[str, int] = {}
        for cell in sorted(first):
            owner.setdefault(signature_of[cell], first[cell])
        owners = np.array([owner[signature_of[cell]] for cell in range(len(first))])[cells]
        return [Behaviour(rank, owners == rank) for rank in sorted(owner.values())]

    def _probe_axes(self) -> None:
        """Find the axes along which signatures change, seen from the first and the last rank.

        Then record, for the first and the last place along these, the far end of the other ones.
        """
        shape = self.shape
        probes: list[list[list[int]]] = []
        for axis, size in enumerate(shape):
            places = {0, 1 % size, size // 2, size - 1}
            bases = (tuple(0 for _ in shape), tuple(size - 1 for size in shape))
            probes.append(
                [
                    [_rank((*base[:axis], place, *base[axis + 1 :]), shape) for place in places]
                    for base in bases
                ]
            )
        self.record(rank for lines in probes for line in lines for rank in line)  # all at once
        self.changing = tuple(
            axis
            for axis, lines in enumerate(probes)
            if any(len({self.known[rank] for rank in line}) > 1 for line in lines)
        )
        ends = [
            tuple(
                (0 if first else size - 1) if axis in self.changing else size - 1
                for axis, size in enumerate(shape)
            )
            for first in (True, False)
        ]
        self.record(_rank(at, shape) for at in ends)


def _count(starts: tuple[tuple[int, ...], ...]) -> int:
    return math.prod(len(item) + 1 for item in starts)


def _cells(shape: tuple[int, ...], starts: tuple[tuple[int, ...], ...]) -> NDArray[np.int64]:
    """A number for every rank, equal where no start lies between two, [world]."""
    places = np.unravel_index(np.arange(math.prod(shape)), shape)
    cells = np.zeros(math.prod(shape), np.int64)
    for place, item in zip(places, starts, strict=True):
        begin = np.array([0, *item])
        cells = cells * len(begin) + np.searchsorted(begin, place, side="right") - 1
    return cells


def _ends(seen: list[int], ranks: NDArray[np.int64], shape: tuple[int, ...]) -> list[int]:
    """What to record beside some ranks, so that there are two that differ along every axis."""
    first, last = int(ranks[0]), int(ranks[-1])
    for one in (last, first):
        if seen and _spans([*seen, one], ranks, shape):
            return [one]
    return [rank for rank in dict.fromkeys((first, last)) if rank not in seen]


def _spans(seen: list[int], ranks: NDArray[np.int64], shape: tuple[int, ...]) -> bool:
    """Whether there are two among some ranks along every axis along which there are among all."""
    some, every = (np.stack(np.unravel_index(np.array(item), shape)) for item in (seen, ranks))
    return bool((((every != every[:, :1]).any(1)) <= (some != some[:, :1]).any(1)).all())


def _far(shape: tuple[int, ...]) -> int:
    """The far end along the first axis that has one, at the beginning of the others."""
    long = next((axis for axis, size in enumerate(shape) if size > 1), 0)
    return _rank(tuple(size - 1 if axis == long else 0 for axis, size in enumerate(shape)), shape)


def _rank(at: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(at, shape))
