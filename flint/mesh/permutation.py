"""Sources and targets of a collective-permute.

The idea: a list of (source, target) pairs is read once, vectorised, into two arrays, and named by
the mesh axis shift that produces it, if there is one: a ring over an axis of a million-device mesh
is (size, stride, delta, wrap), which reports show and equal permutes share.

    >>> ring = permutation(8, np.array([[i, (i + 1) % 8] for i in range(8)]))
    >>> ring.shift
    Shift(size=8, stride=1, delta=1, wraps=True)
"""

from __future__ import annotations

import math
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
        target: rank -> the rank it sends to, -1 for none, shape [world].
        source: rank -> the rank it receives from, -1 for none, shape [world].
        shift: the equivalent axis shift, if there is one.
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
    """The shift that gives ``target``, found from its moves and then compared with all of it.

    Along an axis that spans ``size * stride`` ranks, every rank moves by ``delta * stride``, and
    those that wrap around by a span less.  Several (stride, delta) have the same span and move and
    are the same function: the largest stride is taken.
    """
    ranks = np.arange(world, dtype=np.int64)
    sends = target >= 0
    moves, counts = np.unique((target - ranks)[sends], return_counts=True)
    if len(moves) == 1 and moves[0] != 0:
        move = int(moves[0])
        span, wraps = _chain_span(sends, move), False
    elif len(moves) == 2 and moves[0] < 0 < moves[1]:
        move = int(moves[0] if counts[0] > counts[1] else moves[1])
        span, wraps = int(moves[1] - moves[0]), True
    else:
        return None
    stride = math.gcd(move, span)
    shift = Shift(span // stride, stride, move // stride, wraps)
    found = world % span == 0 and np.array_equal(target_of(world, shift), target)
    return shift if found else None


def _chain_span(sends: NDArray[np.bool_], move: int) -> int:
    """The ranks that an open chain's axis would span, from the ranks that send nothing.

    In every span, the last ``move`` ranks have no partner; the first ones if ``move`` is negative.
    """
    if move > 0:
        return int(np.argmin(sends)) + move
    first = int(np.argmax(sends))
    rest = sends[first:]
    return len(sends) if rest.all() else first + int(np.argmin(rest))


def target_of(world: int, shift: Shift) -> Ranks:
    """The target of every rank under ``shift`` (-1 past the end of an open chain)."""
    ranks = np.arange(world, dtype=np.int64)
    place = ranks // shift.stride % shift.size
    moved = place + shift.delta
    inside = (moved >= 0) & (moved < shift.size)
    target = ranks + (moved % shift.size - place) * shift.stride
    return target if shift.wraps else np.where(inside, target, -1)
