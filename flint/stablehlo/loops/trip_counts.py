"""Trip counts: how often a loop runs, on each rank and in each iteration of the loops around it.

The idea: a loop is counted when its condition is an integer expression over values that grow by a
constant each iteration.  For a comparison with a bound, like JAX's ``i < n``, a division gives the
count (``linear_counts.py``).  Any other condition is evaluated for iterations 0, 1, 2 ... at once
with numpy, and the first false one is the trip count.

The count may also follow from a few integers that the loop does not change (a bound that is an
outer loop's counter, a rank's place along an axis).  They are evaluated for all ranks and outer
iterations at once, the count is found for each combination that occurs, and the loop becomes a
conditional with a branch per count: the pass that resolves conditionals gives each rank and
iteration its own.

    for i in range(4):                 case(i): {}, {loop x 1}, {loop x 2}, {loop x 3}
        for j in range(i): ...

Integers with known initial values that change in another way are computed step by step, to a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flint.errors import FlintError
from flint.graph.scalars import (
    Place,
    Scalar,
    combine,
    constant,
    depends_on_rank,
    evaluate,
    largest_parts,
    levels,
    place_of,
    take,
)
from flint.stablehlo.loops.linear_counts import first_false
from flint.stablehlo.read.records import Block, Module
from flint.stablehlo.values.arrays import Arrays, Lookup
from flint.stablehlo.values.scalars import block_scalars

#: With more distinct counts than this, the trip count is not proved.
MAX_COUNTS = 4096
#: The most kinds of ranks x outer iterations that are evaluated.
_MAX_PLACES = 2**22
#: The most entries of the table from a place's integers to its count.
_MAX_TABLE = 2**20
#: The most iterations x combinations evaluated to find the last one; longer loops are not proved.
_MAX_EVALUATED = 2**25
#: The most iterations that are run one by one: enough to double or halve any integer.
MAX_STEPS = 128


@dataclass(frozen=True, slots=True)
class TripCount:
    """How often a loop runs.

    Attributes:
        counts: the distinct numbers of iterations, ascending.
        which: the index into ``counts``, by rank and the iterations of the enclosing loops.
        count: the number of iterations, by the same.
        known_by: proved, stated (by the module) or given (by the user).
    """

    counts: tuple[int, ...]
    which: Scalar
    count: Scalar
    known_by: str = "proved"


def always(count: int, known_by: str) -> TripCount:
    """The count of a loop that runs the same number of times everywhere."""
    return TripCount((count,), constant(0), constant(count), known_by)


def going_on(
    condition: Block,
    module: Module,
    arguments: list[Scalar | None],
    outer: Lookup,
    arrays: Arrays,
) -> Scalar | None:
    """The expression of a loop's condition; None if it has none.

    Args:
        condition: the loop's condition.
        module: for types and callees.
        arguments: expressions of the loop's arguments.
        outer: expressions of values from outside.
        arrays: small arrays by value id.
    """
    return _expressions(condition, module, arguments, outer, arrays)(condition.yields[0])


def necessary(
    condition: Block,
    module: Module,
    arguments: list[Scalar | None],
    outer: Lookup,
    arrays: Arrays,
) -> Scalar | None:
    """A necessary condition for a loop to continue: ``i < 20 and not done`` needs ``i < 20``.
    Arguments are those of ``going_on``.
    """
    lookup = _expressions(condition, module, arguments, outer, arrays)
    makers = {value: op for op in condition.ops if op.name == "and" for value in op.results}
    found: Scalar | None = None
    parts = [condition.yields[0]]
    while parts:
        value = parts.pop()
        scalar = lookup(value)
        if scalar is not None:
            found = scalar if found is None else combine("and", (found, scalar)) or found
        elif value in makers:
            parts.extend(makers[value].operands)
    return found


def _expressions(
    condition: Block,
    module: Module,
    arguments: list[Scalar | None],
    outer: Lookup,
    arrays: Arrays,
) -> Lookup:
    """Expressions of the values of a condition."""
    known = {
        argument: scalar
        for argument, scalar in zip(condition.args, arguments, strict=True)
        if scalar is not None
    }
    inside = block_scalars(condition, module, known, outer, arrays)
    own = {*condition.args, *(value for op in condition.ops for value in op.results)}
    return lambda value: inside.get(value) if value in own else outer(value)


def trip_count(
    predicate: Scalar,
    around: tuple[int, ...],
    partitions: int,
    replicas: int,
    describe: Callable[[], str],
) -> TripCount | None:
    """How often a loop runs that continues while ``predicate`` holds; None if that cannot be
    proved.

    Args:
        predicate: over the rank, the iterations of the enclosing loops and that of the loop itself.
        around: the most iterations of each enclosing loop, the outermost first.
        partitions, replicas: those of the module; rank = replica * partitions + partition.
        describe: names the loop in errors.

    Raises:
        FlintError: the condition is always true.
    """
    level = len(around)
    parts = largest_parts(predicate, lambda used: level not in used)
    fixed = [part for part in parts if part.op != "constant"]
    used = sorted(set().union(*map(levels, fixed)))
    if used and used[-1] >= level:
        return None
    if fixed and 0 in around:
        return always(0, "proved")
    shape = tuple(around[outer] for outer in used)
    ranks = _different_ranks(fixed, partitions, replicas)
    if len(ranks) * math.prod(shape) > _MAX_PLACES:
        return None
    every = np.indices((len(ranks), *shape), dtype=np.int64).reshape(1 + len(used), -1)
    every[0] = ranks[every[0]]
    everywhere = _place(every, used, partitions, replicas)
    found = _place_in_table(fixed, everywhere, every.shape[1])
    if found is None:
        return None
    index, places, size = found
    cells, first = np.unique(places, return_index=True)
    some = _place(every[:, first, None], used, partitions, replicas)
    trips = first_false(predicate, level, some, len(cells))
    if trips is None:
        trips = _first_false(predicate, level, some, cells)
    if trips is None:
        if predicate.op == "constant":
            raise FlintError(f"{describe()} never ends: its condition is always true")
        return None
    counts, which = np.unique(trips, return_inverse=True)
    if len(counts) == 1:
        return always(int(counts[0]), "proved")
    if len(counts) > MAX_COUNTS:
        return None
    table = np.zeros((2, size), dtype=np.int64)
    table[:, cells] = which.reshape(-1), trips
    choice, count = take(table[0], index), take(table[1], index)
    if choice is None or count is None:
        return None
    return TripCount(tuple(counts.tolist()), choice, count)


def _different_ranks(parts: list[Scalar], partitions: int, replicas: int) -> NDArray[np.int64]:
    """One rank of each set with equal values of all parts that no iteration changes."""
    pieces = [
        piece
        for part in parts
        for piece in largest_parts(part, lambda used: not used)
        if depends_on_rank(piece)
    ]
    if not pieces:
        return np.zeros(1, dtype=np.int64)
    ranks = np.arange(partitions * replicas, dtype=np.int64)
    everywhere = place_of(ranks, partitions, replicas)
    values = [np.broadcast_to(evaluate(piece, everywhere), ranks.shape) for piece in pieces]
    return np.unique(np.stack(values), axis=1, return_index=True)[1].astype(np.int64)


def _place(rows: NDArray[np.int64], used: list[int], partitions: int, replicas: int) -> Place:
    """Ranks (the first row) and iterations of the loops ``used`` as a place."""
    return place_of(rows[0], partitions, replicas, dict(zip(used, rows[1:], strict=True)))


def _place_in_table(
    parts: list[Scalar], place: Place, places: int
) -> tuple[Scalar, NDArray[np.int64], int] | None:
    """One number for the values of ``parts``: its expression, its values, and one more than the
    largest.
    """
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
    """The first iteration for which the predicate is false, for each cell; None if there is
    none.
    """
    trips = np.full(len(cells), -1, dtype=np.int64)
    start, length, evaluated = 0, max(64, 1024 // len(cells)), 0
    counts = level in levels(predicate)
    while evaluated < _MAX_EVALUATED:
        steps = np.arange(start, start + length, dtype=np.int64)[None, :]
        evaluated += length * len(cells)
        where = Place(place.partitions, place.replicas, {**place.iterations, level: steps})
        holds = np.broadcast_to(evaluate(predicate, where), (len(cells), length)).astype(bool)
        ended = (trips < 0) & ~holds.all(axis=1)
        trips[ended] = start + np.argmin(holds[ended], axis=1)
        if (trips >= 0).all():
            return trips
        if not counts:
            return None
        start, length = start + length, min(length * 4, max(64, 2**20 // len(cells)))
    return None


def stepped_trips(
    condition: Block,
    body: Block,
    module: Module,
    inits: list[Scalar | None],
    outer: Lookup,
    arrays: Arrays,
) -> int | None:
    """Iterations of a loop whose integers begin with known values but do not grow by a constant.

    The integers of the body (such as a bound that is doubled) are computed iteration by iteration.

    Args:
        condition, body: the loop's.
        module: for types and callees.
        inits: expressions of the loop's initial values.
        outer: expressions of values from outside.
        arrays: small arrays by value id.
    """
    state = list(inits)
    for trips in range(MAX_STEPS):
        holds = going_on(condition, module, state, outer, arrays)
        if holds is None or holds.op != "constant":
            return None
        if not holds.value:
            return trips
        known = {a: s for a, s in zip(body.args, state, strict=True) if s is not None}
        inside = block_scalars(body, module, known, outer, arrays)
        own = {*body.args, *(value for op in body.ops for value in op.results)}
        found = [inside.get(value) if value in own else outer(value) for value in body.yields]
        state = [item if item is not None and item.op == "constant" else None for item in found]
    return None
