"""Pointwise ops: one value per element, after promotion and broadcasting.

The idea: a row per op says what is computed of values that already have one shape and one dtype.
Half types are computed in float32, as torch's kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, common_dtype, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import TABLE, lowers
from flint.stablehlo.bindings import chlo
from flint.stablehlo.bindings import stablehlo as hlo


def _silu(x: Value) -> Value:
    return op.multiply(x, op.logistic(x))


def _softplus(x: Value) -> Value:
    return hlo.log_plus_one(op.exponential(x))


def _sign(x: Value) -> Value:
    return hlo.sign(x) if dtypes.is_float(op.dtype_of(x)) else _clamped_sign(x)


def _clamped_sign(x: Value) -> Value:
    return op.minimum(op.maximum(x, op.like(-1, x)), op.like(1, x))


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
    "floor": hlo.floor,
    "ceil": hlo.ceil,
    "round": hlo.round_nearest_even,
    "log": op.log,
    "log1p": hlo.log_plus_one,
    "log2": lambda x: op.divide(op.log(x), op.like(math.log(2), x)),
    "neg": op.negate,
    "reciprocal": lambda x: op.divide(op.like(1, x), x),
    "relu": lambda x: op.maximum(x, op.like(0, x)),
    "rsqrt": op.rsqrt,
    "sigmoid": op.logistic,
    "sign": _sign,
    "silu": _silu,
    "sin": hlo.sine,
    "sqrt": op.sqrt,
    "square": lambda x: op.multiply(x, x),
    "tan": hlo.tan,
    "tanh": hlo.tanh,
    "trunc": lambda x: op.select(op.compare("LT", x, op.like(0, x)), hlo.ceil(x), hlo.floor(x)),
}


def _unary(function: Callable[[Value], Value]) -> Callable[..., Value]:
    def lower(call: Call, self: Any, *_: Any, **__: Any) -> Value:
        if dtypes.is_complex(self.dtype) and not dtypes.is_complex(call.dtype):
            raise Unsupported(f"{call.name} of a complex tensor")
        return function(value_at(self, call.shape, call.compute))

    return lower


TABLE.update({f"aten.{name}": _unary(function) for name, function in _UNARY.items()})


@lowers("aten.clone", "aten.contiguous", "aten._to_copy", "aten.lift_fresh_copy", "aten.positive")
def _copied(call: Call, self: Any, *_: Any, **__: Any) -> Value:
    """The same values, in another layout, dtype or device."""
    return value_at(self, call.shape, call.dtype)


@lowers("aten.copy")
def _copy(call: Call, _self: Any, src: Any, *_: Any) -> Value:
    return value_at(src, call.shape, call.dtype)


@lowers("aten._copy_from")
def _copy_from(call: Call, self: Any, *_: Any) -> Value:
    return value_at(self, call.shape, call.dtype)


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


def _pair(call: Call, first: Any, second: Any, dtype: str | None = None) -> tuple[Value, Value]:
    dtype = dtype or call.compute
    return value_at(first, call.shape, dtype), value_at(second, call.shape, dtype)


@lowers("aten.add")
def _add(
    call: Call, self: Any, other: Any, _old_alpha: Any = 1, *, alpha: Any = 1, **_: Any
) -> Value:
    return plus(*_pair(call, self, other), alpha)


@lowers("aten.sub", "aten.subtract")
def _subtract(call: Call, self: Any, other: Any, *, alpha: Any = 1, **_: Any) -> Value:
    x, y = _pair(call, self, other)
    return op.subtract(x, y if alpha == 1 else op.multiply(y, op.like(alpha, y)))


@lowers("aten.rsub")
def _reverse_subtract(call: Call, self: Any, other: Any, alpha: Any = 1, **_: Any) -> Value:
    x, y = _pair(call, self, other)
    return op.subtract(y, x if alpha == 1 else op.multiply(x, op.like(alpha, x)))


@lowers("aten.mul", "aten.multiply")
def _multiply(call: Call, self: Any, other: Any, **_: Any) -> Value:
    return times(*_pair(call, self, other))


@lowers("aten.div", "aten.divide", "aten.true_divide", "aten.floor_divide")
def _divide(
    call: Call, self: Any, other: Any, *, rounding_mode: str | None = None, **_: Any
) -> Value:
    if call.base == "floor_divide":
        rounding_mode = "floor"
    x, y = _pair(call, self, other)
    quotient = op.divide(x, y)
    if rounding_mode is None:
        return quotient
    whole = dtypes.is_float(op.dtype_of(x))
    if rounding_mode == "trunc":
        return _UNARY["trunc"](quotient) if whole else quotient
    if whole:
        return hlo.floor(quotient)
    inexact = op.compare("NE", op.multiply(quotient, y), x)
    negative = op.compare("NE", *(op.compare("LT", v, op.like(0, v)) for v in (x, y)))
    return op.select(
        op.and_(inexact, negative), op.subtract(quotient, op.like(1, quotient)), quotient
    )


@lowers("aten.remainder", "aten.fmod")
def _remainder(call: Call, self: Any, other: Any, **_: Any) -> Value:
    x, y = _pair(call, self, other)
    rest = hlo.remainder(x, y)
    if call.base == "fmod":
        return rest
    zero = op.like(0, rest)
    opposite = op.compare("NE", op.compare("LT", rest, zero), op.compare("LT", y, zero))
    wrong = op.and_(op.compare("NE", rest, zero), opposite)
    return op.select(wrong, op.add(rest, y), rest)


@lowers("aten.pow")
def _power(call: Call, self: Any, exponent: Any, **_: Any) -> Value:
    base = value_at(self, call.shape, call.compute)
    if not isinstance(exponent, int | float):
        exponent = value_at(exponent, call.shape, call.compute)
    return raised(base, exponent)


@lowers("aten.maximum", "aten.fmax")
def _maximum(call: Call, self: Any, other: Any, **_: Any) -> Value:
    return op.maximum(*_pair(call, self, other))


@lowers("aten.minimum", "aten.fmin")
def _minimum(call: Call, self: Any, other: Any, **_: Any) -> Value:
    return op.minimum(*_pair(call, self, other))


@lowers("aten.atan2")
def _atan2(call: Call, self: Any, other: Any, **_: Any) -> Value:
    return hlo.atan2(*_pair(call, self, other))


@lowers("aten.lerp")
def _lerp(call: Call, self: Any, end: Any, weight: Any, **_: Any) -> Value:
    x, y = _pair(call, self, end)
    if not isinstance(weight, int | float):
        weight = value_at(weight, call.shape, call.compute)
    return interpolated(x, y, weight)


@lowers("aten.addcmul", "aten.addcdiv")
def _add_scaled(
    call: Call, self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1, **_: Any
) -> Value:
    x, a, b = (value_at(item, call.shape, call.compute) for item in (self, tensor1, tensor2))
    both = op.multiply(a, b) if call.base == "addcmul" else op.divide(a, b)
    return op.add(x, op.multiply(op.like(value, both), both))


_COMPARISONS = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"}


@lowers(*(f"aten.{name}" for name in _COMPARISONS))
def _compare(call: Call, self: Any, other: Any, **_: Any) -> Value:
    x, y = _pair(call, self, other, common_dtype([self, other]))
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
    return function(*_pair(call, self, other, "bool"))


@lowers(
    "aten.bitwise_and", "aten.bitwise_or", "aten.bitwise_xor",
    "aten.__and__", "aten.__or__", "aten.__xor__",
)  # fmt: skip
def _bitwise(call: Call, self: Any, other: Any, **_: Any) -> Value:
    function = _LOGICAL[call.base.removeprefix("bitwise_").strip("_")]
    return function(*_pair(call, self, other, call.dtype))


@lowers("aten.__lshift__", "aten.bitwise_left_shift")
def _shift_left(call: Call, self: Any, other: Any, **_: Any) -> Value:
    return hlo.shift_left(*_pair(call, self, other, call.dtype))


@lowers("aten.__rshift__", "aten.bitwise_right_shift")
def _shift_right(call: Call, self: Any, other: Any, **_: Any) -> Value:
    return hlo.shift_right_arithmetic(*_pair(call, self, other, call.dtype))


@lowers("aten.isnan")
def _isnan(call: Call, self: Any) -> Value:
    return op.compare("NE", self.value, self.value)


@lowers("aten.isinf")
def _isinf(call: Call, self: Any) -> Value:
    return op.compare("EQ", hlo.abs(self.value), op.like(math.inf, self.value))


@lowers("aten.isfinite")
def _isfinite(call: Call, self: Any) -> Value:
    return hlo.is_finite(self.value)


@lowers("aten.where")
def _where(call: Call, condition: Any, self: Any, other: Any, **_: Any) -> Value:
    return op.select(value_at(condition, call.shape, "bool"), *_pair(call, self, other, call.dtype))


@lowers("aten.masked_fill")
def _masked_fill(call: Call, self: Any, mask: Any, value: Any, **_: Any) -> Value:
    return op.select(value_at(mask, call.shape, "bool"), *_pair(call, value, self, call.dtype))


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
    if posinf is None or neginf is None:
        raise Unsupported("aten.nan_to_num without values for the infinities")
    x = op.select(op.compare("NE", x, x), op.like(nan or 0.0, x), x)
    x = op.select(op.compare("EQ", x, op.like(math.inf, x)), op.like(posinf, x), x)
    return op.select(op.compare("EQ", x, op.like(-math.inf, x)), op.like(neginf, x), x)


@lowers("aten.complex")
def _complex(call: Call, real: Any, imag: Any, **_: Any) -> Value:
    part = dtypes.PARTS[call.dtype]
    return hlo.complex(*_pair(call, real, imag, part))


@lowers("aten.polar")
def _polar(call: Call, abs: Any, angle: Any, **_: Any) -> Value:
    size, turn = _pair(call, abs, angle, dtypes.PARTS[call.dtype])
    return hlo.complex(op.multiply(size, hlo.cosine(turn)), op.multiply(size, hlo.sine(turn)))


@lowers("aten._conj_physical", "aten.conj_physical")
def _conjugate(call: Call, self: Any, **_: Any) -> Value:
    return op.conjugate(self.value)


@lowers("aten.abs")
def _abs(call: Call, self: Any, **_: Any) -> Value:
    if dtypes.is_complex(self.dtype):
        return hlo.abs(self.value)
    return hlo.abs(value_at(self, call.shape, call.compute))


@lowers("aten.sgn")
def _sgn(call: Call, self: Any, **_: Any) -> Value:
    """The sign, or a complex number's direction."""
    value = self.value
    return hlo.sign(value) if self.dtype != "bool" else value


@lowers("aten.angle")
def _angle(call: Call, self: Any, **_: Any) -> Value:
    if not dtypes.is_complex(self.dtype):
        raise Unsupported(f"{call.name} of a real tensor")
    return hlo.atan2(hlo.imag(self.value), hlo.real(self.value))
