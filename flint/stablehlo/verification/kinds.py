"""Shared by checks: their signature, and comparisons of types.

The idea: a check is a function of an op and the types of its operands and results, which raises
``Unfit`` with words that follow the op's name.  Sizes that the program does not fix are not
compared.

    same((f32_8,), (f32_8,))                # returns
    same((f32_8,), (f32_16,))               # Unfit: operand 8xf32 for the result 16xf32
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from flint.graph.tensor_types import TensorType
from flint.stablehlo.read.records import Op

Types: TypeAlias = Sequence[TensorType]
#: (op, types of its operands, types of its results).
Check: TypeAlias = Callable[[Op, Types, Types], None]


class Unfit(ValueError):
    """An op whose operands, results and attributes do not fit each other."""


def require(holds: bool, text: str) -> None:
    """Raise ``Unfit`` with a text unless something holds."""
    if not holds:
        raise Unfit(text)


def counted(ins: Types, outs: Types, operands: int, results: int = 1) -> None:
    """Check the numbers of operands and results."""
    require(len(ins) == operands, f"has {len(ins)} operands, not {operands}")
    require(len(outs) == results, f"has {len(outs)} results, not {results}")


def paired(ins: Types, outs: Types) -> None:
    """Check that there is an operand for each result."""
    require(len(ins) == len(outs), f"has {len(ins)} operands and {len(outs)} results")


def same_shape(one: TensorType, other: TensorType, what: str = "operand") -> None:
    """Check that two shapes are equal."""
    if one.shape != other.shape and not (one.dynamic or other.dynamic):
        raise Unfit(f"has the {what} {one} for the result {other}")


def same_type(one: TensorType, other: TensorType, what: str = "operand") -> None:
    """Check that two types are equal."""
    same_shape(one, other, what)
    require(one.dtype == other.dtype, f"has the {what} {one} for the result {other}")


def same_rank(one: TensorType, other: TensorType) -> None:
    """Check that two tensors have as many dims."""
    require(len(one.shape) == len(other.shape), f"has the operand {one} for the result {other}")


def fixed(*types: TensorType) -> bool:
    """Whether all sizes are known."""
    return not any(item.dynamic for item in types)


def sizes_of(item: TensorType, dims: Sequence[int]) -> tuple[int, ...]:
    """The sizes of some dims of a tensor, each of which it has and which are named once."""
    known = all(0 <= dim < len(item.shape) for dim in dims) and len(set(dims)) == len(dims)
    require(known, f"names dims {tuple(dims)}, which do not fit {item}")
    return tuple(item.shape[dim] for dim in dims)


def scalar(item: TensorType, what: str = "operand") -> None:
    """Check that a tensor has no dims."""
    require(not item.shape, f"has the {what} {item}, which is not a scalar")
