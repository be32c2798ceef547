"""Comparisons, logic, bits, and what kind of number an element is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, common_dtype, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.pointwise import is_nan, pair
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo

_COMPARISONS = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}


@lowers(*(f"aten.{name}" for name in _COMPARISONS))
def _compare(call: Call, self: Any, other: Any, **_: Any) -> Value:
    x, y = pair(call, self, other, common_dtype([self, other]))
    return op.compare(_COMPARISONS[call.base], x, y)


@lowers("aten.logical_not")
def _logical_not(call: Call, self: Any, **_: Any) -> Value:
    return op.not_(value_at(self, call.shape, "bool"))


@lowers("aten.bitwise_not")
def _bitwise_not(call: Call, self: Any, **_: Any) -> Value:
    return op.not_(value_at(self, call.shape, call.dtype))


_LOGICAL: dict[str, Callable[[Value, Value], Value]] = {
    "and": op.and_,
    "or": op.or_,
    "xor": op.xor,
}


@lowers("aten.logical_and", "aten.logical_or", "aten.logical_xor")
def _logical(call: Call, self: Any, other: Any, **_: Any) -> Value:
    function = _LOGICAL[call.base.removeprefix("logical_")]
    return function(*pair(call, self, other, "bool"))


@lowers("aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_xor")
def _bitwise(call: Call, self: Any, other: Any, **_: Any) -> Value:
    function = _LOGICAL[call.base.removeprefix("bitwise_")]
    return function(*pair(call, self, other, call.dtype))


@lowers("aten.__lshift__", "aten.bitwise_left_shift")
def _shift_left(call: Call, self: Any, other: Any, **_: Any) -> Value:
    return hlo.shift_left(*pair(call, self, other, call.dtype))


@lowers("aten.__rshift__", "aten.bitwise_right_shift")
def _shift_right(call: Call, self: Any, other: Any, **_: Any) -> Value:
    right = hlo.shift_right_arithmetic
    if dtypes.is_unsigned(call.dtype):
        right = hlo.shift_right_logical
    return right(*pair(call, self, other, call.dtype))


@lowers("aten.isnan")
def _isnan(call: Call, self: Any) -> Value:
    return is_nan(self.value)


@lowers("aten.isinf")
def _isinf(call: Call, self: Any) -> Value:
    if not dtypes.is_float(self.dtype):
        return _of_whole_numbers(call, self, False)
    return op.compare("EQ", hlo.abs(self.value), op.like(math.inf, self.value))


def _of_whole_numbers(call: Call, self: Any, answer: bool) -> Value:
    if dtypes.is_complex(self.dtype):
        raise Unsupported(f"{call.name} of a complex tensor")
    return op.constant(answer, call.shape, "bool")
