"""Comparisons, logic, bits, and what kind of number an element is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, common_dtype, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.pointwise import is_nan, pair
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo

_COMPARISONS = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}


@lowers(*(f"aten.{name}" for name in _COMPARISONS))
def _compare(call: Call, self: Any, other: Any, **_: Any) -> Value:
    x, y = pair(call, self, other, common_dtype(self, other))
    return op.compare(_COMPARISONS[call.base], x, y)


@lowers("aten.logical_not", "aten.bitwise_not")
def _not(call: Call, self: Any, **_: Any) -> Value:
    return op.not_(value_at(self, call.shape, _dtype(call)))


def _dtype(call: Call) -> str:
    """What an op is computed in: logic of bools, bits of the result's type."""
    return "bool" if call.base.startswith("logical_") else call.dtype


_BITS: dict[str, Callable[[Value, Value], Value]] = {
    **dict.fromkeys(("logical_and", "bitwise_and"), op.and_),
    **dict.fromkeys(("logical_or", "bitwise_or"), op.or_),
    **dict.fromkeys(("logical_xor", "bitwise_xor"), op.xor),
    **dict.fromkeys(("__lshift__", "bitwise_left_shift"), hlo.shift_left),
    **dict.fromkeys(("__rshift__", "bitwise_right_shift"), hlo.shift_right_arithmetic),
}


@lowers(*(f"aten.{name}" for name in _BITS))
def _bits(call: Call, self: Any, other: Any, **_: Any) -> Value:
    function = _BITS[call.base]
    if function is hlo.shift_right_arithmetic and dtypes.is_unsigned(call.dtype):
        function = hlo.shift_right_logical
    return function(*pair(call, self, other, _dtype(call)))


@lowers("aten.isnan")
def _isnan(call: Call, self: Any) -> Value:
    return is_nan(self.value)
