"""Loops whose number of iterations differs: by rank, or by the iteration of the loops around them.

The idea: the count follows from a few integers that the loop does not change (a bound that is an
outer loop's counter, a rank's place along an axis).  They are evaluated for all ranks and outer
iterations at once, the count is found for each combination that occurs, and the loop becomes a
conditional with a branch per count: the pass that resolves conditionals gives each rank and
iteration its own.

    for i in range(4):                 case(i): {}, {loop x 1}, {loop x 2}, {loop x 3}
        for j in range(i): ...
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.graph.scalars import (
    Place,
    Scalar,
    combine,
    constant,
    depends_on_rank,
    evaluate,
    levels,
    take,
)

#: More distinct counts than this are not told apart.
MAX_COUNTS = 4096
#: Kinds of ranks x outer iterations that are evaluated.
_MAX_PLACES = 2**22
#: Entries of the table from a place's integers to its count.
_MAX_TABLE = 2**20
#: Iterations x combinations that are evaluated in search of the last one.
_MAX_EVALUATED = 2**25


@dataclass(frozen=True, slots=True)
class Trips:
    """How often a loop runs.

    Attributes:
        counts: the distinct numbers of iterations, ascending.
        which: the index into ``counts``, by rank and the iterations of the loops around.
        count: the number of iterations, by the same.
    """

    counts: tuple[int, ...]
    which: Scalar
    count: Scalar


def varying_trips(
    predicate: Scalar, level: int, around: tuple[int, ...], partitions: int, replicas: int
) -> Trips | None:
    """How often a loop runs that goes on while ``predicate``; None where it cannot be told.

    Args:
        predicate: over the rank, the iterations of the loops around and that of the loop itself.
        level: the loop's.
        around: the most iterations of each loop around, the outermost first.
        partitions, replicas: of the module; rank = replica * partitions + partition.
    """
    fixed = [part for part in _without(predicate, level) if part.op != "constant"]
    used = sorted(set().union(*map(levels, fixed)))
    if not fixed or (used and used[-1] >= level):
        return None
    if 0 in around:
        return Trips((0,), constant(0), constant(0))
    shape = tuple(around[outer] for outer in used)
    ranks = _different_ranks(fixed, partitions, replicas)
    if len(ranks) * math.prod(shape) > _MAX_PLACES:
        return None
    every = np.indices((len(ranks), *shape), dtype=np.int64).reshape(1 + len(used), -1)
    every[0] = ranks[every[0]]
    found = _place_in_table(fixed, _place(every, used, partitions), every.shape[1])
    if found is None:
        return None
    index, places, size = found
    cells, first = np.unique(places, return_index=True)
    trips = _first_false(predicate, level, _place(every[:, first, None], used, partitions), cells)
    if trips is None:
        return None
    counts, which = np.unique(trips, return_inverse=True)
    if len(counts) > MAX_COUNTS:
        return None
    table = np.zeros((2, size), dtype=np.int64)
    table[:, cells] = which.reshape(-1), trips
    choice, count = take(table[0], index), take(table[1], index)
    if choice is None or count is None:
        return None
    return Trips(tuple(counts.tolist()), choice, count)


def _without(scalar: Scalar, level: int) -> Iterator[Scalar]:
    """The largest parts of an expression in which the iteration at ``level`` does not occur."""
    if level not in levels(scalar):
        yield scalar
    else:
        for arg in scalar.args:
            yield from _without(arg, level)


def _different_ranks(parts: list[Scalar], partitions: int, replicas: int) -> NDArray[np.int64]:
    """One of all ranks for which everything in ``parts`` that no iteration changes is equal."""
    ranks = np.arange(partitions * replicas, dtype=np.int64)
    everywhere = Place(ranks % partitions, ranks // partitions)
    pieces = [piece for part in parts for piece in _without_loops(part) if depends_on_rank(piece)]
    if not pieces:
        return ranks[:1]
    values = [np.broadcast_to(evaluate(piece, everywhere), ranks.shape) for piece in pieces]
    return np.unique(np.stack(values), axis=1, return_index=True)[1].astype(np.int64)


def _without_loops(scalar: Scalar) -> Iterator[Scalar]:
    """The largest parts of an expression in which no iteration occurs."""
    if not levels(scalar):
        yield scalar
    else:
        for arg in scalar.args:
            yield from _without_loops(arg)


def _place(rows: NDArray[np.int64], used: list[int], partitions: int) -> Place:
    """Ranks (the first row) and iterations of the loops ``used`` as a place."""
    iterations = dict(zip(used, rows[1:], strict=True))
    return Place(rows[0] % partitions, rows[0] // partitions, iterations)


def _place_in_table(
    parts: list[Scalar], place: Place, places: int
) -> tuple[Scalar, NDArray[np.int64], int] | None:
    """One number for what ``parts`` are: its expression, its values, one more than the largest."""
    index, values, size = constant(0), np.zeros(places, dtype=np.int64), 1
    for part in parts:
        numbers = np.broadcast_to(np.asarray(evaluate(part, place)), values.shape)
        low, high = int(numbers.min()), int(numbers.max())
        extent = high - low + 1
        if size * extent > _MAX_TABLE:
            return None
        scaled = combine("multiply", (index, constant(extent)))
        shifted = combine("subtract", (part, constant(low)))
        joined = combine("add", (scaled, shifted)) if scaled and shifted else None
        if joined is None:
            return None
        index, values, size = joined, values * extent + (numbers - low), size * extent
    return index, values, size


def _first_false(
    predicate: Scalar, level: int, place: Place, cells: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """The first iteration at which the predicate is false, for each cell; None if it never is."""
    trips = np.full(len(cells), -1, dtype=np.int64)
    start, length, evaluated = 0, 64, 0
    while evaluated < _MAX_EVALUATED:
        steps = np.arange(start, start + length, dtype=np.int64)[None, :]
        evaluated += length * len(cells)
        where = Place(place.partitions, place.replicas, {**place.iterations, level: steps})
        holds = np.broadcast_to(evaluate(predicate, where), (len(cells), length)).astype(bool)
        ended = (trips < 0) & ~holds.all(axis=1)
        trips[ended] = start + np.argmin(holds[ended], axis=1)
        if (trips >= 0).all():
            return trips
        start, length = start + length, min(length * 2, max(64, 2**22 // len(cells)))
    return None
