"""Who sends to whom in a collective-permute.

The idea: a list of (source, target) pairs is read once, vectorised, into two arrays, and named by
the mesh axis shift that produces it where there is one: a ring over an axis of a million-device mesh
is (size, stride, delta, wrap), which is what a report shows and what two equal permutes share.

    >>> ring = permutation(8, np.array([[i, (i + 1) % 8] for i in range(8)]))
    >>> ring.shift
    Shift(size=8, stride=1, delta=1, wraps=True)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError

Ranks = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shift:
    """Every rank sends to the one ``delta`` steps on along one axis.

    Attributes:
        size: length of the axis.
        stride: rank distance between neighbours on it.
        delta: steps, between 1 - size and size - 1.
        wraps: the ends are joined (a ring) or have no partner (an open chain).
    """

    size: int
    stride: int
    delta: int
    wraps: bool


@dataclass(frozen=True, eq=False, slots=True)
class Permutation:
    """Peers as functions of the rank.

    Attributes:
        world: number of ranks.
        target: rank -> whom it sends to, -1 for nobody, shape [world].
        source: rank -> from whom it receives, -1 for nobody, shape [world].
        shift: the axis shift that says the same, if there is one.
    """

    world: int
    target: Ranks
    source: Ranks
    shift: Shift | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Permutation) and np.array_equal(self.target, other.target)

    def __hash__(self) -> int:
        return hash(self.shift) if self.shift else hash(self.target.tobytes())

    @property
    def pairs(self) -> int:
        """Number of (source, target) pairs."""
        return int((self.target >= 0).sum())


def permutation(world: int, pairs: Ranks) -> Permutation:
    """The permutation of a list of (source, target) pairs, shape [pairs, 2].

    Raises:
        FlintError: a device outside the world, or one that sends or receives twice.
    """
    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    if pairs.size and (int(pairs.min()) < 0 or int(pairs.max()) >= world):
        raise FlintError(f"a source-target pair names a device outside 0..{world - 1}")
    target = np.full(world, -1, dtype=np.int64)
    source = np.full(world, -1, dtype=np.int64)
    target[pairs[:, 0]] = pairs[:, 1]
    source[pairs[:, 1]] = pairs[:, 0]
    if int((target >= 0).sum()) != len(pairs) or int((source >= 0).sum()) != len(pairs):
        raise FlintError("a device sends or receives twice in one collective_permute")
    return Permutation(world, target, source, _shift_of(world, target))


def _shift_of(world: int, target: Ranks) -> Shift | None:
    ranks = np.arange(world)
    sends = target >= 0
    moves = (target - ranks)[sends]
    if not moves.size or not moves.any():
        return None
    values, counts = np.unique(moves[moves != 0], return_counts=True)
    # An open chain moves everybody alike; a ring adds one wrap-around distance of the other sign.
    main = int(values[np.argmax(counts)])
    spans = {world // abs(main) * abs(main)}
    for value in values.tolist():
        if (value > 0) != (main > 0):
            spans.add(abs(value) + abs(main))
    spans |= _chain_spans(ranks, sends, main)
    for span in sorted(spans):
        for stride, delta in _steps(main, span):
            shift = Shift(span // stride, stride, delta, wraps=False)
            for candidate in (shift, Shift(shift.size, stride, delta, wraps=True)):
                if world % span == 0 and np.array_equal(target_of(world, candidate), target):
                    return candidate
    return None


def _chain_spans(ranks: Ranks, sends: NDArray[np.bool_], move: int) -> set[int]:
    """Axis spans suggested by the first run of ranks that send nothing."""
    silent = ranks[~sends]
    if not silent.size:
        return set()
    first = int(silent[0])
    run = 1
    while run < silent.size and int(silent[run]) == first + run:
        run += 1
    return {first + run} if move > 0 else {int(np.flatnonzero(np.diff(sends.astype(int)) < 0)[0]) + 1
                                           if (np.diff(sends.astype(int)) < 0).any() else len(ranks)}


def _steps(move: int, span: int) -> list[tuple[int, int]]:
    """(stride, delta) that explain a move of ``move`` ranks inside an axis that spans ``span``."""
    return [
        (abs(move) // delta, delta if move > 0 else -delta)
        for delta in (1, 2, 3, 4, 8)
        if abs(move) % delta == 0 and span % (abs(move) // delta) == 0
    ]


def target_of(world: int, shift: Shift) -> Ranks:
    """The target of every rank under ``shift`` (-1 past the end of an open chain)."""
    ranks = np.arange(world, dtype=np.int64)
    place = ranks // shift.stride % shift.size
    moved = place + shift.delta
    inside = (moved >= 0) & (moved < shift.size)
    target = ranks + (moved % shift.size - place) * shift.stride
    return target if shift.wraps else np.where(inside, target, -1)
