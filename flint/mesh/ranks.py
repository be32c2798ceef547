"""Sets of ranks, kept symbolic.

The idea: which ranks run a program repeats with the mesh ("every rank of stage 3"), so a set is
runs of consecutive ranks within a period.  A million-rank pipeline stage is a handful of numbers.

    >>> RankSet(512, 512, ((0, 64),)).size          # the first 64 ranks
    64
    >>> from_mask(np.arange(512) % 8 == 3)
    RankSet(world=512, period=8, runs=((3, 4),))
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.errors import UsageError

Ranks = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankSet:
    """Ranks ``r`` of ``world`` with ``r % period`` in one of ``runs``.

    Attributes:
        world: number of ranks.
        period: length after which the pattern repeats; divides ``world``.
        runs: (first, past the last) within the period, ascending.
    """

    world: int
    period: int
    runs: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return sum(stop - start for start, stop in self.runs) * (self.world // self.period)

    def array(self) -> Ranks:
        """The ranks, ascending, shape [size]."""
        if not self.runs:
            return np.zeros(0, dtype=np.int64)
        once = np.concatenate([np.arange(start, stop, dtype=np.int64) for start, stop in self.runs])
        repeats = np.arange(self.world // self.period, dtype=np.int64) * self.period
        ranks: Ranks = (repeats[:, None] + once[None, :]).reshape(-1)
        return ranks

    def contains(self, ranks: Ranks) -> NDArray[np.bool_]:
        """Which of ``ranks`` are in the set."""
        place = np.asarray(ranks, dtype=np.int64) % self.period
        inside = np.zeros(place.shape, dtype=bool)
        for start, stop in self.runs:
            inside |= (place >= start) & (place < stop)
        return inside

    def __str__(self) -> str:
        if self.size == self.world:
            return "all"
        shown = ",".join(str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in self.runs[:8])
        shown += ",..." if len(self.runs) > 8 else ""
        return shown if self.period == self.world else f"{shown} of every {self.period}"


def all_ranks(world: int) -> RankSet:
    """Every rank."""
    return RankSet(world, 1, ((0, 1),))


def pattern(sets: Sequence[RankSet]) -> Ranks:
    """The first ranks, after which the pattern of all these sets repeats, shape [period]."""
    return np.arange(math.lcm(*(item.period for item in sets)), dtype=np.int64)


def from_mask(mask: NDArray[np.bool_]) -> RankSet:
    """The set of the ranks where ``mask`` is true, with the shortest period, shape [world]."""
    world = len(mask)
    for period in _divisors(world):
        once = mask[:period]
        if np.array_equal(
            mask.reshape(-1, period), np.broadcast_to(once, (world // period, period))
        ):
            edges = np.diff(np.concatenate([[0], once.astype(np.int8), [0]]))
            starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
            runs = tuple(zip(starts.tolist(), stops.tolist(), strict=True))
            return RankSet(world, period, runs)
    raise AssertionError("the whole world is always a period")


def _divisors(number: int) -> list[int]:
    small = [i for i in range(1, int(number**0.5) + 1) if number % i == 0]
    return sorted({*small, *(number // i for i in small)})


def chosen_ranks(ranks: str | Iterable[int], world: int) -> Ranks:
    """Ranks given as numbers, or as on the command line: ``all``, ``0-7`` or ``0,3,8-11``.

    Raises:
        UsageError: no such ranks.
    """
    if isinstance(ranks, str):
        return parse_ranks(ranks, world)
    try:
        numbers = sorted({operator.index(rank) for rank in ranks})
    except TypeError:
        raise UsageError(f"ranks={ranks!r}: expected numbers, or text such as '0,3,8-11'") from None
    if not numbers or numbers[0] < 0 or numbers[-1] >= world:
        raise UsageError(f"ranks={ranks!r}: give at least one rank; ranks go from 0 to {world - 1}")
    return np.array(numbers, dtype=np.int64)


def parse_ranks(text: str, world: int) -> Ranks:
    """Ranks from the command line's ``all``, ``0-7`` or ``0,3,8-11``.

    Raises:
        UsageError: not such a list, or a rank outside the world.
    """
    if text == "all":
        return np.arange(world, dtype=np.int64)
    chosen: set[int] = set()
    try:
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            low, high = int(first), int(last) if dash else int(first)
            if low > high >= 0:
                raise UsageError(f"--ranks {part.strip()}: the first rank of a range comes first")
            if high >= world or low < 0:
                raise UsageError(f"--ranks {part.strip()}: ranks go from 0 to {world - 1}")
            chosen.update(range(low, high + 1))
    except ValueError:
        raise UsageError(f"--ranks {text!r}: expected all, 0-7 or 0,3,8-11") from None
    return np.array(sorted(chosen), dtype=np.int64)
