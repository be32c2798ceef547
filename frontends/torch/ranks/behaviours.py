"""Which ranks do the same: found by recording a few of them.

The idea: what a rank does depends on its place in the mesh along some axes (a pipeline's stages)
and not along others.  The first, the last and two other ranks are recorded; where they agree all
ranks run one program.  Where not, and where it is known at which places something changes (uneven
shards), ranks between any two such places are recorded.  Where that does not explain what was seen,
the axes along which something changes are found one by one, every place along those is recorded,
and ranks elsewhere are recorded to check the prediction.  What a program asks about its own rank
(``rank == 1``) tells of ranks that get another answer than those that were recorded: they are, too.

    behaviours((4, 2, 8), sign)       # sign(ranks) -> rank -> signature; here 4 stages
    [Behaviour(0, mask of 16 ranks), Behaviour(16, ...), ...]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
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

#: Ranks -> what tells each of them apart; equal for ranks that do the same.
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
    world = math.prod(shape)
    known: dict[int, str] = {}

    def signature(ranks: Sequence[int]) -> list[str]:
        new = [rank for rank in dict.fromkeys(ranks) if rank not in known]
        if new:
            known.update(sign(new))
        return [known[rank] for rank in ranks]

    witnesses = [0, world - 1, _rank(tuple(size // 2 for size in shape), shape), _far(shape)]
    signature(witnesses)
    kinds = _by_answers(shape, signature, known, answers) if answers is not None else None
    if len(set(known.values())) == 1:
        return [Behaviour(0, np.ones(world, bool))]
    if len(known) == world:
        return _all_recorded(known)
    if kinds is not None and 1 < kinds.max() + 1 <= _MOST_ANSWERS:
        found = _attempt(shape, kinds, signature, known, both=True)
        if isinstance(found, list):
            return found
    hints = tuple(tuple(sorted(item)) for item in breaks()) if breaks is not None else ()
    if any(hints) and _count(hints) <= MAX_REPRESENTATIVES:
        found = _attempt(shape, _cells(shape, hints), signature, known, both=True)
        if isinstance(found, list):
            return found
    changing = _changing_axes(shape, signature)
    signature(_others(shape, changing))
    every = tuple(tuple(range(1, n)) if a in changing else () for a, n in enumerate(shape))
    if any(hints):
        mixed = tuple(hint or places for hint, places in zip(hints, every, strict=True))
        if _count(mixed) <= MAX_REPRESENTATIVES:
            found = _attempt(shape, _cells(shape, mixed), signature, known, both=True)
            if isinstance(found, list):
                return found
    count = _count(every)
    if count > MAX_REPRESENTATIVES:
        raise FlintError(
            f"ranks behave differently along mesh axes of {count:,} places together; at most "
            f"{MAX_REPRESENTATIVES} are recorded"
        )
    found = _attempt(shape, _cells(shape, every), signature, known, both=False)
    if isinstance(found, list):
        return found
    raise FlintError(
        f"rank {found[1]:,} behaves differently from rank {found[0]:,}, although both have the "
        f"same coordinates on the mesh axes {changing} along which ranks differ: its behaviour "
        "follows no pattern of mesh axes"
    )


def _count(starts: tuple[tuple[int, ...], ...]) -> int:
    return math.prod(len(item) + 1 for item in starts)


def _all_recorded(known: dict[int, str]) -> list[Behaviour]:
    owner: dict[str, int] = {}
    for rank in sorted(known):
        owner.setdefault(known[rank], rank)
    owners = np.array([owner[known[rank]] for rank in range(len(known))])
    return [Behaviour(rank, owners == rank) for rank in owner.values()]


def _by_answers(
    shape: tuple[int, ...],
    signature: Callable[[Sequence[int]], list[str]],
    known: dict[int, str],
    answers: Callable[[], Answers],
) -> NDArray[np.int64] | None:
    """Record ranks of every kind, until those ask nothing new: the kinds."""
    while True:
        told = answers()
        kinds: NDArray[np.int64]
        _, firsts, kinds = np.unique(told.kinds, return_index=True, return_inverse=True)
        if told.unseen and len(kinds) <= FEW:
            missing = [rank for rank in range(len(kinds)) if rank not in known]
        elif len(firsts) <= _MOST_ANSWERS or len(kinds) <= FEW:
            seen = {int(kinds[rank]) for rank in known}
            missing = [int(rank) for kind, rank in enumerate(firsts) if kind not in seen]
        else:
            return None
        if not missing:
            return kinds
        signature(missing)


def _cells(shape: tuple[int, ...], starts: tuple[tuple[int, ...], ...]) -> NDArray[np.int64]:
    """A number for every rank, equal where no start lies between two, [world]."""
    places = np.unravel_index(np.arange(math.prod(shape)), shape)
    cells = np.zeros(math.prod(shape), np.int64)
    for place, item in zip(places, starts, strict=True):
        begin = np.array([0, *item])
        cells = cells * len(begin) + np.searchsorted(begin, place, side="right") - 1
    return cells


def _attempt(
    shape: tuple[int, ...],
    cells: NDArray[np.int64],
    signature: Callable[[Sequence[int]], list[str]],
    known: dict[int, str],
    *,
    both: bool,
) -> list[Behaviour] | tuple[int, int]:
    """Behaviours if ranks of one cell do the same; or two of one that do not.

    Args:
        cells: number of each rank's, [world].
        signature, known: records ranks, and what has been recorded.
        both: of a cell, ranks that differ along every axis must have been recorded.
    """
    count = int(cells.max()) + 1
    wanted: list[int] = []
    for cell in range(count):
        ranks = np.flatnonzero(cells == cell)
        seen = [rank for rank in known if cells[rank] == cell]
        if not seen or (both and not _spans(seen, ranks, shape)):
            wanted += _ends(seen, ranks, shape) if both else [int(ranks[0])]
    signature(wanted)
    said: dict[int, int] = {}
    for rank in sorted(known):
        other = said.setdefault(int(cells[rank]), rank)
        if known[other] != known[rank]:
            return other, rank
    owner: dict[str, int] = {}
    for cell in range(count):
        owner.setdefault(known[said[cell]], said[cell])
    owners = np.array([owner[known[said[cell]]] for cell in range(count)])[cells]
    return [Behaviour(rank, owners == rank) for rank in sorted(owner.values())]


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


def _changing_axes(
    shape: tuple[int, ...], signature: Callable[[Sequence[int]], list[str]]
) -> tuple[int, ...]:
    """Axes along which a signature changes, seen from the first and from the last rank."""
    probes: dict[int, list[int]] = {}
    for axis, size in enumerate(shape):
        for base in (tuple(0 for _ in shape), tuple(size - 1 for size in shape)):
            for place in {0, 1 % size, size // 2, size - 1}:
                at = (*base[:axis], place, *base[axis + 1 :])
                probes.setdefault(axis, []).append(_rank(at, shape))
    signature([rank for ranks in probes.values() for rank in ranks])  # all at once
    changing = []
    for axis, ranks in probes.items():
        half = len(ranks) // 2
        if len(set(signature(ranks[:half]))) > 1 or len(set(signature(ranks[half:]))) > 1:
            changing.append(axis)
    return tuple(changing)


def _others(shape: tuple[int, ...], changing: tuple[int, ...]) -> list[int]:
    """For the first and the last place along the changing axes, the far end of the other ones."""
    ends = []
    for end in (0, -1):
        at = tuple(
            (0 if end == 0 else size - 1) if axis in changing else size - 1
            for axis, size in enumerate(shape)
        )
        ends.append(_rank(at, shape))
    return ends


def _rank(at: tuple[int, ...], shape: tuple[int, ...]) -> int:
    return int(np.ravel_multi_index(at, shape))
