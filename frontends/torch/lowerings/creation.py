"""Tensors from nothing: constants, ranges, identity; zeros for memory without values."""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers


@lowers("aten.zeros", "aten.zeros_like", "aten.new_zeros", "aten.zero", "aten._efficientzerotensor")
def _zeros(call: Call, *_: Any, **__: Any) -> Value:
    return op.constant(0, call.shape, call.dtype)


@lowers("aten.ones", "aten.ones_like", "aten.new_ones")
def _ones(call: Call, *_: Any, **__: Any) -> Value:
    return op.constant(1, call.shape, call.dtype)


@lowers("aten.full", "aten.full_like")
def _full(call: Call, _size_or_self: Any, fill_value: Any, **_: Any) -> Value:
    return value_at(fill_value, call.shape, call.dtype)


@lowers("aten.scalar_tensor")
def _scalar_tensor(call: Call, s: Any, **_: Any) -> Value:
    return op.constant(s, call.shape, call.dtype)


@lowers("aten.arange")
def _arange(call: Call, *args: Any, end: Any = None, **_: Any) -> Value:
    """``_arange(end)``, ``_arange(start, end)``, ``_arange(start, end, step)``."""
    numbers = [item for item in args if not isinstance(item, str) and item is not None]
    start, step = (0, 1) if len(numbers) < 2 else (numbers[0], (*numbers, 1)[2])
    dtype = "float64" if dtypes.is_float(call.dtype) else "int64"
    place = op.iota(call.shape, 0, dtype)
    scaled = place if step == 1 else op.multiply(place, op.like(step, place))
    return scaled if start == 0 else op.add(scaled, op.like(start, scaled))


@lowers("aten.linspace")
def _linspace(call: Call, start: Any, end: Any, steps: int, **_: Any) -> Value:
    place = op.iota(call.shape, 0, "float64")
    step = (end - start) / max(steps - 1, 1)
    return op.add(op.multiply(place, op.like(step, place)), op.like(start, place))


@lowers("aten.eye")
def _eye(call: Call, *_: Any, **__: Any) -> Value:
    return op.compare("EQ", op.iota(call.shape, 0), op.iota(call.shape, 1))


@lowers("aten.tril", "aten.triu")
def _triangle(call: Call, self: Any, diagonal: int = 0, **_: Any) -> Value:
    value = self.value
    row = op.iota(call.shape, self.rank - 2)
    column = op.iota(call.shape, self.rank - 1)
    shifted = op.add(row, op.like(diagonal, row))
    kept = op.compare("GE" if call.base == "tril" else "LE", shifted, column)
    return op.select(kept, value, op.like(0, value))
