"""Pointwise ops: one value per element, after promotion and broadcasting.

The idea: a row per op states what is computed from values that already have one shape and dtype.
Half types are computed in float32, as torch's kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Operand, Unsupported, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import TABLE, lowers
from flint.stablehlo.read.bindings import chlo
from flint.stablehlo.read.bindings import stablehlo as hlo


def is_nan(x: Value) -> Value:
    """Which elements of a float are not a number; bool."""
    return op.compare("NE", x, x)


def sign(x: Value) -> Value:
    """-1, 0 or 1; 0 of NaN too, as torch's kernels, which subtract two comparisons, give it."""
    if op.dtype_of(x) == "bool":
        return x
    zero, one = op.like(0, x), op.like(1, x)
    above = op.select(op.compare("GT", x, zero), one, zero)
    if dtypes.is_unsigned(op.dtype_of(x)):
        return above
    return op.select(op.compare("LT", x, zero), op.like(-1, x), above)


def _whole(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """A function that rounds; integers are whole."""

    def apply(x: Value) -> Value:
        return function(x) if dtypes.is_float(op.dtype_of(x)) else x

    return apply


def truncated(x: Value) -> Value:
    """Without the fractional part."""
    if not dtypes.is_float(op.dtype_of(x)):
        return x
    return op.select(op.compare("LT", x, op.like(0, x)), hlo.ceil(x), hlo.floor(x))


#: One argument, computed in the result's compute dtype.
_UNARY: dict[str, Callable[[Value], Value]] = {
    "acos": chlo.acos,
    "acosh": chlo.acosh,
    "asin": chlo.asin,
    "asinh": chlo.asinh,
    "atan": chlo.atan,
    "atanh": chlo.atanh,
    "cosh": chlo.cosh,
    "sinh": chlo.sinh,
    "log10": lambda x: op.divide(op.log(x), op.like(math.log(10), x)),
    "exp2": lambda x: op.exponential(op.multiply(x, op.like(math.log(2), x))),
    "cos": hlo.cosine,
    "erf": op.erf,
    "exp": op.exponential,
    "expm1": hlo.exponential_minus_one,
    "floor": _whole(hlo.floor),
    "ceil": _whole(hlo.ceil),
    "round": _whole(hlo.round_nearest_even),
    "log": op.log,
    "log1p": hlo.log_plus_one,
    "log2": lambda x: op.divide(op.log(x), op.like(math.log(2), x)),
    "neg": op.negate,
    "reciprocal": lambda x: op.divide(op.like(1, x), x),
    "relu": lambda x: op.maximum(x, op.like(0, x)),
    "rsqrt": op.rsqrt,
    "sigmoid": op.logistic,
    "sign": sign,
    "sin": hlo.sine,
    "sqrt": op.sqrt,
    "tan": hlo.tan,
    "tanh": hlo.tanh,
    "trunc": truncated,
}


def _unary(function: Callable[[Value], Value]) -> Callable[..., Value]:
    def lower(call: Call, self: Any, *_: Any, **__: Any) -> Value:
        if dtypes.is_complex(self.dtype) and not dtypes.is_complex(call.dtype):
            raise Unsupported(f"{call.name} of a complex tensor")
        return function(value_at(self, call.shape, call.compute))

    return lower


TABLE.update({f"aten.{name}": _unary(function) for name, function in _UNARY.items()})


@lowers("aten.clone", "aten._to_copy", "aten.lift_fresh_copy", "aten._copy_from")
def _copied(call: Call, self: Any, *_: Any, **__: Any) -> Value:
    """The same values, in another layout, dtype or device."""
    return value_at(self, call.shape, call.dtype)


@lowers("aten.copy", "fsdp.copy")
def _copy(call: Call, _self: Any, src: Any, *_: Any) -> Value:
    return value_at(src, call.shape, call.dtype)


def plus(x: Value, y: Value, alpha: Any = 1) -> Value:
    """``x + alpha * y``; of bools, or."""
    if op.dtype_of(x) == "bool":
        return op.or_(x, y)
    return op.add(x, y if alpha == 1 else op.multiply(y, op.like(alpha, y)))


def times(x: Value, y: Value) -> Value:
    """``x * y``; of bools, and."""
    return op.and_(x, y) if op.dtype_of(x) == "bool" else op.multiply(x, y)


def raised(x: Value, exponent: Any) -> Value:
    """``x ** exponent`` as torch's kernels do it: small powers by multiplication."""
    if not isinstance(exponent, int | float):
        return op.power(x, exponent)
    if exponent == 0:
        return op.like(1, x)
    if exponent in (1, 2, 3):
        result = x
        for _ in range(int(exponent) - 1):
            result = op.multiply(result, x)
        return result
    if dtypes.is_float(op.dtype_of(x)):
        if exponent == 0.5:
            return op.sqrt(x)
        if exponent == -0.5:
            return op.rsqrt(x)
        if exponent in (-1, -2):
            return op.divide(op.like(1, x), raised(x, -exponent))
    return op.power(x, op.like(exponent, x))


def interpolated(x: Value, y: Value, weight: Any) -> Value:
    """``x + weight * (y - x)``, from the nearer end, as torch does."""
    difference = op.subtract(y, x)
    if isinstance(weight, int | float):
        if abs(weight) < 0.5:
            return op.add(x, op.multiply(op.like(weight, x), difference))
        return op.subtract(y, op.multiply(difference, op.like(1 - weight, x)))
    near = op.add(x, op.multiply(weight, difference))
    far = op.subtract(y, op.multiply(difference, op.subtract(op.like(1, x), weight)))
    return op.select(op.compare("LT", hlo.abs(weight), op.like(0.5, weight)), near, far)


def pair(call: Call, first: Any, second: Any, dtype: str | None = None) -> tuple[Value, Value]:
    """Two arguments in the first target's shape; None: in the dtype that it is computed in."""
    if dtype is None:
        return promoted(call, first), promoted(call, second)
    return value_at(first, call.shape, dtype), value_at(second, call.shape, dtype)


def promoted(call: Call, item: Any) -> Value:
    """An argument, first in the dtype to which torch promotes it, then in the compute dtype."""
    if isinstance(item, Operand) and item.dtype != call.dtype:
        item = op.convert(item.value, call.dtype)
    return value_at(item, call.shape, call.compute)


@lowers("aten.add")
def _add(
    call: Call, self: Any, other: Any, _old_alpha: Any = 1, *, alpha: Any = 1, **_: Any
) -> Value:
    return plus(*pair(call, self, other), alpha)


@lowers("aten.sub")
def _subtract(call: Call, self: Any, other: Any, *, alpha: Any = 1, **_: Any) -> Value:
    x, y = pair(call, self, other)
    return op.subtract(x, y if alpha == 1 else op.multiply(y, op.like(alpha, y)))


@lowers("aten.pow")
def _power(call: Call, self: Any, exponent: Any, **_: Any) -> Value:
    base = promoted(call, self)
    if not isinstance(exponent, int | float):
        exponent = promoted(call, exponent)
    return raised(base, exponent)


#: Two arguments, computed in the result's compute dtype.
_BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "mul": times,
    "maximum": op.maximum,
    "minimum": op.minimum,
    "atan2": hlo.atan2,
}


def _binary(function: Callable[[Value, Value], Value]) -> Callable[..., Value]:
    def lower(call: Call, self: Any, other: Any, **_: Any) -> Value:
        return function(*pair(call, self, other))

    return lower


TABLE.update({f"aten.{name}": _binary(function) for name, function in _BINARY.items()})


@lowers("aten.fmax", "aten.fmin")
def _extreme_number(call: Call, self: Any, other: Any, **_: Any) -> Value:
    """The larger or smaller one; of a number and NaN, the number."""
    x, y = pair(call, self, other)
    best = (op.maximum if call.base == "fmax" else op.minimum)(x, y)
    if not dtypes.is_float(op.dtype_of(x)):
        return best
    return op.select(is_nan(x), y, op.select(is_nan(y), x, best))


@lowers("aten.lerp")
def _lerp(call: Call, self: Any, end: Any, weight: Any, **_: Any) -> Value:
    x, y = pair(call, self, end)
    if not isinstance(weight, int | float):
        weight = promoted(call, weight)
    return interpolated(x, y, weight)


@lowers("aten.where")
def _where(call: Call, condition: Any, self: Any, other: Any, **_: Any) -> Value:
    return op.select(value_at(condition, call.shape, "bool"), *pair(call, self, other, call.dtype))


@lowers("aten.clamp", "aten.clamp_min", "aten.clamp_max")
def _clamp(call: Call, self: Any, min: Any = None, max: Any = None, **_: Any) -> Value:
    if call.base == "clamp_max":
        min, max = None, min
    value = value_at(self, call.shape, call.dtype)
    if min is not None:
        value = op.maximum(value, value_at(min, call.shape, call.dtype))
    if max is not None:
        value = op.minimum(value, value_at(max, call.shape, call.dtype))
    return value


@lowers("aten.hardtanh")
def _hardtanh(call: Call, self: Any, min_val: Any = -1, max_val: Any = 1, **_: Any) -> Value:
    return _clamp(call, self, min_val, max_val)


@lowers("aten.nan_to_num")
def _nan_to_num(
    call: Call, self: Any, nan: Any = None, posinf: Any = None, neginf: Any = None, **_: Any
) -> Value:
    x = value_at(self, call.shape, call.dtype)
    if not dtypes.is_float(call.dtype):
        return x
    most = dtypes.largest(call.dtype)
    high, low = most if posinf is None else posinf, -most if neginf is None else neginf
    x = op.select(is_nan(x), op.like(nan or 0.0, x), x)
    x = op.select(op.compare("EQ", x, op.like(math.inf, x)), op.like(high, x), x)
    return op.select(op.compare("EQ", x, op.like(-math.inf, x)), op.like(low, x), x)
