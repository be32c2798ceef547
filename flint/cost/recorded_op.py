"""What the shapes of a recorded op's operands tell about its cost.

OpWork(items=(WorkItem(Unit.VECTOR, "f32", 0),), moved=(1024, 1024))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from flint.cost.op_work import gemm_flops
from flint.graph.work import Unit, WorkItem

#: A tensor: shape and element type ("" unknown); an argument has one, several or none.
Tensor: TypeAlias = tuple[tuple[int, ...], str]
Arguments: TypeAlias = Sequence[Sequence[Tensor]]
Items: TypeAlias = tuple[WorkItem, ...]


class OpWork(NamedTuple):
    """An op's cost, as far as its shapes and values tell.

    Attributes:
        items: its FLOPs; None if unknown.
        moved: bytes that it reads and writes, if they are not those of all operands; (0, 0) if
            unknown.
        lacks: what the trace does not record, so that ``items`` are a bound or unknown; "" if
            nothing.
    """

    items: Items | None
    moved: tuple[int, int] | None = None
    lacks: str = ""


Formula: TypeAlias = Callable[[Arguments, Sequence[Any]], Items | OpWork | None]


def product(dims: tuple[int, int, int, int], dtype: str) -> WorkItem:
    """A matrix product of (batch, m, n, k)."""
    return WorkItem(Unit.MATMUL, dtype, gemm_flops(dims), dims)
