"""Scalars that a program computes from rank, loop counters and constants.

The idea: predicates of conditionals, slice offsets ("my shard") and trip counts are small integer
expressions over partition id, replica id, loop iterations and constants.  They are kept as
expressions and evaluated for all ranks (or all iterations) at once with numpy, so that the
behaviour of a rank is computed, never guessed.

Numbers are the true values in int64.  StableHLO's integers wrap around at their width, so an
expression of an op that can leave its type's range is enclosed in ``wrap``; ``ui64``, whose values
do not fit, has no expressions.

    >>> my_row = Scalar("divide", (Scalar("partition_id"), constant(8)))
    >>> evaluate(my_row, Place(partitions=np.arange(16)))
    array([0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1])
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = NDArray[np.int64] | NDArray[np.float64] | NDArray[np.bool_] | np.generic | int

#: Deeper expressions are given up: no real program needs them, and evaluation recurses.
MAX_DEPTH = 200
#: So are expressions of more operators, counting shared parts each time: evaluation walks a tree.
MAX_SIZE = 4096


@dataclass(frozen=True, eq=False, slots=True)
class Scalar:
    """An integer expression.

    Attributes:
        op: ``"constant"``, ``"table"``, ``"partition_id"``, ``"replica_id"``, ``"iteration"`` or
            the StableHLO op that combines ``args``.
        args: operands.
        value: a constant's number, a table's array, the nesting level of an iteration (0 is the
            outermost loop), the direction of a ``compare``, or the integer type of a ``wrap`` or a
            shift.
        depth: height of the expression.
        size: operators in it, as a tree.
    """

    op: str
    args: tuple[Scalar, ...] = ()
    value: Any = None
    depth: int = 0
    size: int = 1

    @property
    def key(self) -> Hashable:
        """Equal for expressions that are written in the same way."""
        value = self.value.tobytes() if isinstance(self.value, np.ndarray) else self.value
        return (self.op, value, *[arg.key for arg in self.args])

    def mentions(self, op: str) -> bool:
        """Whether ``op`` occurs anywhere in the expression."""
        return self.op == op or any(arg.mentions(op) for arg in self.args)


def constant(number: int) -> Scalar:
    """The expression of a constant."""
    return Scalar("constant", (), int(number))


def iteration(level: int) -> Scalar:
    """The iteration number of the enclosing loop at nesting ``level`` (0: outermost)."""
    return Scalar("iteration", (), level)


@dataclass(frozen=True, slots=True)
class Place:
    """Where expressions are evaluated; arrays broadcast against each other.

    Attributes:
        partitions, replicas: ids of the ranks.
        iterations: iteration number by loop level.
    """

    partitions: Any = 0
    replicas: Any = 0
    iterations: dict[int, Any] = field(default_factory=dict)


def place_of(
    ranks: Any, partitions: int, replicas: int, iterations: dict[int, Any] | None = None
) -> Place:
    """Ids of ranks: rank = (copy * replicas + replica) * partitions + partition."""
    return Place(ranks % partitions, ranks // partitions % replicas, iterations or {})


def _truncated_divide(a: Any, b: Any) -> Any:
    safe = np.where(b == 0, 1, b)
    floor = np.floor_divide(a, safe)
    inexact = (floor * safe != a) & ((np.less(a, 0)) != (np.less(safe, 0)))
    return np.where(b == 0, -1, floor + inexact)


def _remainder(a: Any, b: Any) -> Any:
    return np.where(b == 0, a, a - b * _truncated_divide(a, b))


def bits_of(dtype: str) -> int:
    """Width of an integer type in bits (``index`` has 64)."""
    return 64 if dtype == "index" else int(dtype.lstrip("ui"))


def wrapped(numbers: Any, dtype: str) -> Any:
    """``numbers`` modulo 2 to the width of the integer type ``dtype``, as values of that type."""
    bits = bits_of(dtype)
    if bits >= 64:
        return numbers
    low = np.bitwise_and(numbers, (1 << bits) - 1)
    if dtype.startswith("u"):
        return low
    return low - (np.bitwise_and(low, 1 << (bits - 1)) << 1)


def _shift_left(numbers: Any, by: Any, dtype: str) -> Any:
    inside = (by >= 0) & (by < bits_of(dtype))
    return wrapped(np.where(inside, np.left_shift(numbers, np.where(inside, by, 0)), 0), dtype)


def _shift_right_arithmetic(numbers: Any, by: Any, dtype: str) -> Any:
    bits = bits_of(dtype)
    signed = wrapped(numbers, f"i{bits}")
    return wrapped(np.right_shift(signed, np.where((by >= 0) & (by < bits), by, bits - 1)), dtype)


def _shift_right_logical(numbers: Any, by: Any, dtype: str) -> Any:
    inside = (by >= 0) & (by < bits_of(dtype))
    unsigned = np.asarray(wrapped(numbers, f"ui{bits_of(dtype)}")).astype(np.uint64)
    shifted = np.right_shift(unsigned, np.where(inside, by, 0).astype(np.uint64))
    return wrapped(np.where(inside, shifted, 0).astype(np.int64), dtype)


#: Ops whose ``value`` is the integer type that they work in.
_TYPED: dict[str, Callable[..., Any]] = {
    "wrap": wrapped,
    "shift_left": _shift_left,
    "shift_right_arithmetic": _shift_right_arithmetic,
    "shift_right_logical": _shift_right_logical,
}

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
#: The directions of comparisons.
DIRECTIONS = frozenset(_COMPARE)

#: Ops that fold; integers and booleans only (StableHLO's division truncates towards zero).
_FOLD: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": _truncated_divide,
    "remainder": _remainder,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "negate": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "select": np.where,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "not": np.logical_not,
    "to_bool": lambda x: np.not_equal(x, 0),
    "to_int": lambda x: np.asarray(x).astype(np.int64),
}

FOLDABLE = frozenset(_FOLD) | frozenset(_TYPED) | {"compare"}


def combine(op: str, args: tuple[Scalar, ...], value: Any = None) -> Scalar | None:
    """The expression ``op(args)``; constants are folded. None when it grows too large."""
    depth = 1 + max((arg.depth for arg in args), default=0)
    size = 1 + sum(arg.size for arg in args)
    if depth > MAX_DEPTH or size > MAX_SIZE:
        return None
    combined = Scalar(op, args, value, depth, size)
    if op != "table" and all(arg.op == "constant" for arg in args):
        return constant(int(np.asarray(evaluate(combined, Place()))))
    return combined


def wrap(scalar: Scalar | None, dtype: str) -> Scalar | None:
    """``scalar`` as a value of the integer type ``dtype``, wrapped around at its width."""
    if scalar is None or bits_of(dtype) >= 64:
        return scalar
    return combine("wrap", (scalar,), dtype)


def take(table: NDArray[np.int64], index: Scalar) -> Scalar | None:
    """``table[index]``, the index clamped into the table as dynamic_slice does."""
    if index.op == "constant":
        return constant(int(table[min(max(index.value, 0), len(table) - 1)]))
    return combine("table", (index,), table)


def evaluate(scalar: Scalar, place: Place) -> Any:
    """The value of ``scalar`` at every rank and iteration of ``place``.

    Raises:
        KeyError: an iteration of a loop level that ``place`` does not give.
    """
    with np.errstate(over="ignore"):
        return _evaluate(scalar, place)


def _evaluate(scalar: Scalar, place: Place) -> Any:
    op = scalar.op
    if op == "constant":
        return np.int64(scalar.value)
    if op == "partition_id":
        return np.asarray(place.partitions, dtype=np.int64)
    if op == "replica_id":
        return np.asarray(place.replicas, dtype=np.int64)
    if op == "iteration":
        return np.asarray(place.iterations[scalar.value], dtype=np.int64)
    args = [_evaluate(arg, place) for arg in scalar.args]
    if op == "table":
        return scalar.value[np.clip(args[0], 0, len(scalar.value) - 1)]
    if op == "compare":
        return _COMPARE[scalar.value](*args)
    if op in _TYPED:
        return _TYPED[op](*args, scalar.value)
    return _FOLD[op](*args)


def levels(scalar: Scalar) -> set[int]:
    """Loop levels whose iteration the expression depends on."""
    if scalar.op == "iteration":
        return {scalar.value}
    return set().union(*(levels(arg) for arg in scalar.args)) if scalar.args else set()


def largest_parts(scalar: Scalar, wanted: Callable[[set[int]], bool]) -> Iterator[Scalar]:
    """The largest parts of an expression that depend on none but ``wanted`` sets of loop levels."""
    if wanted(levels(scalar)):
        yield scalar
    else:
        for arg in scalar.args:
            yield from largest_parts(arg, wanted)


def substituted(scalar: Scalar, level: int, by: Scalar) -> Scalar | None:
    """``scalar`` with ``by`` in place of the iteration at ``level``; None if it becomes too
    large.
    """
    if scalar.op == "iteration":
        return by if scalar.value == level else scalar
    if not scalar.args:
        return scalar
    args = []
    for arg in scalar.args:
        made = substituted(arg, level, by)
        if made is None:
            return None
        args.append(made)
    if scalar.op == "table":
        return take(scalar.value, args[0])
    return combine(scalar.op, tuple(args), scalar.value)


def depends_on_rank(scalar: Scalar) -> bool:
    """Whether the value may differ between ranks."""
    return scalar.mentions("partition_id") or scalar.mentions("replica_id")
