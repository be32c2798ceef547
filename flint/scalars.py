"""Scalars that a program computes from its place: rank, loop counter, constants.

The idea: predicates of conditionals, slice offsets ("my shard") and trip counts are small integer
expressions over partition id, replica id, loop iterations and constants.  They are kept as
expressions and evaluated for all ranks (or all iterations) at once with numpy, so that what a rank
does is computed and never guessed.

    >>> my_row = Scalar("divide", (Scalar("partition_id"), constant(8)))
    >>> evaluate(my_row, Place(partitions=np.arange(16)))
    array([0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Value = NDArray[np.int64] | NDArray[np.float64] | NDArray[np.bool_] | np.generic | int

#: Expressions deeper than this are given up: nothing real needs them, and evaluation recurses.
MAX_DEPTH = 200


@dataclass(frozen=True, eq=False, slots=True)
class Scalar:
    """An integer expression.

    Attributes:
        op: ``"constant"``, ``"table"``, ``"partition_id"``, ``"replica_id"``, ``"iteration"`` or
            the StableHLO op that combines ``args``.
        args: operands.
        value: a constant's number, a table's array, the nesting level of an iteration (0 is the
            outermost loop), or the direction of a ``compare``.
        depth: height of the expression.
    """

    op: str
    args: tuple[Scalar, ...] = ()
    value: Any = None
    depth: int = 0

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


def _truncated_divide(a: Any, b: Any) -> Any:
    safe = np.where(b == 0, 1, b)
    return np.where(b == 0, -1, np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe)))


def _remainder(a: Any, b: Any) -> Any:
    return np.where(b == 0, a, a - b * _truncated_divide(a, b))


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}

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
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "shift_right_logical": np.right_shift,
    "select": np.where,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "not": np.logical_not,
    "to_bool": lambda x: np.not_equal(x, 0),
    "to_int": lambda x: np.asarray(x).astype(np.int64),
}

FOLDABLE = frozenset(_FOLD) | {"compare"}


def combine(op: str, args: tuple[Scalar, ...], value: Any = None) -> Scalar | None:
    """The expression ``op(args)``; constants are folded. None when it grows too deep."""
    depth = 1 + max((arg.depth for arg in args), default=0)
    if depth > MAX_DEPTH:
        return None
    combined = Scalar(op, args, value, depth)
    if op != "table" and all(arg.op == "constant" for arg in args):
        return constant(int(np.asarray(evaluate(combined, Place()))))
    return combined


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
    if scalar.op == "constant":
        return np.int64(scalar.value)
    if scalar.op == "partition_id":
        return np.asarray(place.partitions, dtype=np.int64)
    if scalar.op == "replica_id":
        return np.asarray(place.replicas, dtype=np.int64)
    if scalar.op == "iteration":
        return np.asarray(place.iterations[scalar.value], dtype=np.int64)
    args = [evaluate(arg, place) for arg in scalar.args]
    if scalar.op == "table":
        return scalar.value[np.clip(args[0], 0, len(scalar.value) - 1)]
    if scalar.op == "compare":
        return _COMPARE[scalar.value](*args)
    return _FOLD[scalar.op](*args)


def levels(scalar: Scalar) -> set[int]:
    """Loop levels whose iteration the expression depends on."""
    if scalar.op == "iteration":
        return {scalar.value}
    return set().union(*(levels(arg) for arg in scalar.args)) if scalar.args else set()


def depends_on_rank(scalar: Scalar) -> bool:
    """Whether ranks may disagree about the value."""
    return scalar.mentions("partition_id") or scalar.mentions("replica_id")


def to_json(scalar: Scalar | None) -> Any:
    """A JSON form of the expression."""
    if scalar is None:
        return None
    value = scalar.value.tolist() if isinstance(scalar.value, np.ndarray) else scalar.value
    return [scalar.op, [to_json(arg) for arg in scalar.args], value]


def from_json(data: Any) -> Scalar | None:
    """The expression of ``to_json``'s form.

    Raises:
        ValueError: not such a form.
    """
    if data is None:
        return None
    op, args, value = data
    if op not in FOLDABLE | {"constant", "table", "partition_id", "replica_id", "iteration"}:
        raise ValueError(f"unknown scalar op {op!r}")
    parts = tuple(part for part in map(from_json, args) if part is not None)
    if isinstance(value, list):
        value = np.array(value, dtype=np.int64)
    return Scalar(op, parts, value, 1 + max((part.depth for part in parts), default=-1))
