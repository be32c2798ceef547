"""Trip counts of loops that compare a counter with a bound, without trying their iterations.

The idea: the counter in a condition ``i < n`` grows by a constant, so a division gives the first
iteration for which it is false, unless the counter leaves its type's range before.  A loop of 10^18
iterations is counted as fast as one of ten.

    first_false(compare(wrap(0 + 3 * iteration), 10))       # 4: 0, 3, 6, 9
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flint.graph.scalars import Place, Scalar, bits_of, evaluate, levels

#: The same comparison with its sides exchanged.
_REVERSED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE", "NE": "NE"}
#: The most places that are examined one by one.
_MOST = 4096


def first_false(
    predicate: Scalar, level: int, place: Place, cells: int
) -> NDArray[np.int64] | None:
    """The first iteration for which a predicate is false, by cell; None if this method cannot tell.

    Args:
        predicate: over the iteration of ``level`` and the values of a place.
        level: level of the loop.
        place: shape [cells, 1].
        cells: number of cells.
    """
    if predicate.op != "compare" or predicate.value not in _REVERSED or cells > _MOST:
        return None
    left, right = predicate.args
    direction = predicate.value
    if level in levels(right):
        left, right, direction = right, left, _REVERSED[direction]
    dtype = left.value if left.op == "wrap" else "i64"
    counter = left.args[0] if left.op == "wrap" else left
    if level in levels(right) or not _is_linear(counter, level):
        return None

    def at(scalar: Scalar, step: int) -> list[int]:
        where = Place(place.partitions, place.replicas, {**place.iterations, level: np.int64(step)})
        found: list[int] = np.broadcast_to(evaluate(scalar, where), (cells, 1))[:, 0].tolist()
        return found

    count = _COUNTS[direction]
    found = []
    for first, second, bound in zip(at(counter, 0), at(counter, 1), at(right, 0), strict=True):
        trips = count(first, second - first, bound)
        if trips is None or not _holds(first, second - first, trips, dtype):
            return None
        found.append(trips)
    return np.array(found, dtype=np.int64)


def _is_linear(scalar: Scalar, level: int) -> bool:
    """Whether an expression grows by the same in every iteration."""
    if level not in levels(scalar) or scalar.op == "iteration":
        return True
    if scalar.op in ("add", "subtract"):
        return all(_is_linear(arg, level) for arg in scalar.args)
    if scalar.op == "multiply":
        some = [arg for arg in scalar.args if level in levels(arg)]
        return len(some) == 1 and _is_linear(some[0], level)
    return False


def _holds(first: int, step: int, trips: int, dtype: str) -> bool:
    """Whether a counter stays in its type's range until its last comparison."""
    bits = bits_of(dtype)
    low, high = (0, 2**bits) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    inside = all(low <= first + step * at < high for at in (0, trips))
    return inside and trips < 2**63


def _below(first: int, step: int, bound: int) -> int | None:
    if first >= bound:
        return 0
    return None if step <= 0 else -((first - bound) // step)


def _above(first: int, step: int, bound: int) -> int | None:
    return _below(-first, -step, -bound)


def _unequal(first: int, step: int, bound: int) -> int | None:
    if first == bound:
        return 0
    trips, rest = divmod(bound - first, step) if step else (-1, 0)
    return trips if trips > 0 and not rest else None


#: Direction -> iterations of a counter, by its first value, its step and the bound.
_COUNTS: dict[str, Callable[[int, int, int], int | None]] = {
    "LT": _below,
    "LE": lambda first, step, bound: _below(first, step, bound + 1),
    "GT": _above,
    "GE": lambda first, step, bound: _above(first, step, bound - 1),
    "NE": _unequal,
}
