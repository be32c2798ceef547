"""The points that a kernel's code runs at: its grid, and the iterations of the loops around it.

The idea: the values of an integer at every point form an array over the points, from which trip
counts and taken branches follow exactly.  An axis along which nothing changes has extent 1, so
arrays stay small; a loop puts its axis in front, so earlier arrays still broadcast.

    >>> grid = whole((4, 8))
    >>> rows, index = grid.looped(grid.along(0) + 1)     # for k in range(program_id(0) + 1)
    >>> rows.total()
    80
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[Any]
#: The most points that are distinguished; a loop that would make more has an unknown index.
_MOST = 1 << 20


@dataclass(frozen=True, slots=True)
class Points:
    """The points at which code runs, and how often.

    Attributes:
        shape: extents of the axes: of loops, the innermost first, then of the grid.
        times: how often it runs at each point; broadcasts to ``shape``.
    """

    shape: tuple[int, ...]
    times: Values

    def total(self) -> int:
        """The number of runs at all points together."""
        given = (1,) * (len(self.shape) - self.times.ndim) + self.times.shape
        repeated = prod(s for s, own in zip(self.shape, given, strict=True) if own == 1)
        return int(self.times.sum()) * repeated

    def along(self, axis: int) -> Values:
        """The position along an axis of the shape."""
        sizes = [1] * len(self.shape)
        sizes[axis] = self.shape[axis]
        return np.arange(self.shape[axis], dtype=np.int64).reshape(sizes)

    def where(self, taken: Values) -> Points:
        """Only the points where a condition holds."""
        return replace(self, times=self.times * taken)

    def looped(self, trips: Values) -> tuple[Points, Values | None]:
        """The points of a loop's body, and the iteration at each; None if there are too many."""
        trips = np.maximum(trips, 0)
        most = int(trips.max(initial=0))
        if most * np.broadcast(self.times, trips).size > _MOST:
            return replace(self, times=self.times * trips), None
        inside = replace(self, shape=(most, *self.shape))
        index = inside.along(0)
        return (inside if trips.size == 1 else inside.where(index < trips)), index


def whole(grid: tuple[int, ...]) -> Points:
    """All points of a grid."""
    return Points(grid, np.ones((), np.int64))
