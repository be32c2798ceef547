"""Differences of the ranks' clocks, from the collectives in which they meet.

The idea: no member leaves a collective before the last has arrived, so on one clock all members'
intervals have a moment in common.  For ranks a and b that bounds how far b's clock is ahead of a's,

    start_b - end_a <= ahead <= end_b - start_a        for every collective of both,

and since members leave nearly together, the median of end_b - end_a estimates it.  If no value is
within the bounds of all collectives, the traces are from different runs or the clocks drift, and
then times are not compared across ranks.

    Meetings().add(rank, key, start, end, duration)
"""

from __future__ import annotations

import statistics
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from flint.observed.classes import OpClass

#: Identifies a collective on all of its ranks: its class, its group and its number.
Key: TypeAlias = tuple[OpClass, tuple[int, ...], int]
#: Possible error of timestamps on one clock, in nanoseconds: the profiler fits devices' clocks to
#: the host's.
_BLUR = 20_000


class Presence(NamedTuple):
    """A rank in a collective: nanoseconds on its own clock."""

    start: int
    end: int
    duration: int


@dataclass(frozen=True, slots=True)
class Clock:
    """A rank's clock against that of the lowest rank that it can be compared with.

    Attributes:
        rank, reference: the rank, and the rank that it is compared with.
        ahead: estimated seconds; 0 if the clocks may agree.
        least, most: its bounds, in seconds.
        collectives: number of collectives that it was inferred from.
        agree: whether one number fits all of them.
    """

    rank: int
    reference: int
    ahead: float
    least: float
    most: float
    collectives: int
    agree: bool


@dataclass(slots=True)
class Meetings:
    """Collectives, identified across ranks."""

    found: dict[Key, dict[int, Presence]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, rank: int, key: Key, presence: Presence) -> None:
        """Add a rank's participation."""
        self.found[key][rank] = presence

    def waiting(self) -> dict[Key, dict[int, int]]:
        """Nanoseconds that each rank spent beyond the fastest of those traced."""
        return {
            key: {
                rank: here.duration - min(item.duration for item in ranks.values())
                for rank, here in ranks.items()
            }
            for key, ranks in self.found.items()
            if len(ranks) > 1
        }

    def clocks(self) -> list[Clock]:
        """Clocks of all ranks that meet a lower one, ascending."""
        bounds: dict[tuple[int, int], _Bounds] = defaultdict(_Bounds)
        near: dict[int, set[int]] = defaultdict(set)
        for ranks in self.found.values():
            first = min(ranks)
            for rank, present in ranks.items():
                if rank != first:
                    bounds[first, rank].add(ranks[first], present)
                    near[first].add(rank)
                    near[rank].add(first)
        result: dict[int, Clock] = {}
        for root in sorted(near):
            if root in result:
                continue
            queue = deque([(root, 0, 0, 0, True)])
            seen = {root}
            while queue:
                here, ahead, below, above, agree = queue.popleft()
                for other in sorted(near[here] - seen):
                    seen.add(other)
                    way = bounds.get((here, other)) or bounds[other, here].reversed()
                    middle, fits = way.estimate()
                    least, most = below + way.least, above + way.most
                    total = ahead + middle
                    item = Clock(
                        other, root, total / 1e9, least / 1e9, most / 1e9, len(way.ends),
                        fits and agree,
                    )  # fmt: skip
                    result[other] = item
                    queue.append((other, total, least, most, item.agree))
        return [result[rank] for rank in sorted(result)]


@dataclass(slots=True)
class _Bounds:
    """How far the second rank's clock may be ahead of the first's, ns."""

    least: int = -(1 << 62)
    most: int = 1 << 62
    ends: list[int] = field(default_factory=list)

    def add(self, a: Presence, b: Presence) -> None:
        self.least = max(self.least, b.start - a.end)
        self.most = min(self.most, b.end - a.start)
        self.ends.append(b.end - a.end)

    def reversed(self) -> _Bounds:
        return _Bounds(-self.most, -self.least, [-end for end in self.ends])

    def estimate(self) -> tuple[int, bool]:
        """The most likely difference, 0 if that may be, and whether it fits all collectives."""
        middle = round(statistics.median(self.ends))
        if self.least > self.most + 2 * _BLUR:
            return middle, False
        if self.least - _BLUR <= 0 <= self.most + _BLUR:
            return 0, True
        low, high = sorted((self.least, self.most))
        return min(max(middle, low), high), True
