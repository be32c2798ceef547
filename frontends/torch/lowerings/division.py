"""Division, remainders and rounding to decimals, for integers and floats as in torch."""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.pointwise import pair, truncated
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo


@lowers("aten.div")
def _divide(
    call: Call, self: Any, other: Any, *, rounding_mode: str | None = None, **_: Any
) -> Value:
    x, y = pair(call, self, other)
    quotient = op.divide(x, y)
    if rounding_mode is None:
        return quotient
    if rounding_mode == "trunc":
        return truncated(quotient)
    if dtypes.is_float(op.dtype_of(x)):
        return _floored(x, y, quotient)
    inexact = op.compare("NE", op.multiply(quotient, y), x)
    wrong = op.and_(inexact, _opposite(x, y))
    return op.select(wrong, op.subtract(quotient, op.like(1, quotient)), quotient)


def _opposite(x: Value, y: Value) -> Value:
    """Where one is negative and the other is not; bool."""
    return op.compare("NE", *(op.compare("LT", v, op.like(0, v)) for v in (x, y)))


def _floored(x: Value, y: Value, quotient: Value) -> Value:
    """Floats divided and floored as in torch and Python: the remainder is exact, so that
    1 // 0.1 is 9, though 1 / 0.1 rounds to 10; division by zero is that of the quotient."""
    rest = hlo.remainder(x, y)
    zero, one = op.like(0, x), op.like(1, x)
    whole = op.divide(op.subtract(x, rest), y)
    wrong = op.and_(op.compare("NE", rest, zero), _opposite(rest, y))
    whole = op.select(wrong, op.subtract(whole, one), whole)
    floor = hlo.floor(whole)
    short = op.compare("GT", op.subtract(whole, floor), op.like(0.5, x))
    floor = op.select(short, op.add(floor, one), floor)
    no_whole = op.multiply(zero, quotient)
    floor = op.select(op.compare("NE", whole, zero), floor, no_whole)
    return op.select(op.compare("EQ", y, zero), quotient, floor)


@lowers("aten.remainder", "aten.fmod")
def _remainder(call: Call, self: Any, other: Any, **_: Any) -> Value:
    x, y = pair(call, self, other)
    rest = hlo.remainder(x, y)
    if call.base == "fmod":
        return rest
    wrong = op.and_(op.compare("NE", rest, op.like(0, rest)), _opposite(rest, y))
    return op.select(wrong, op.add(rest, y), rest)


@lowers("aten.round.decimals")
def _round_to_decimals(call: Call, self: Any, *, decimals: int, **_: Any) -> Value:
    """Rounded in steps of 10 to the power of ``-decimals``."""
    x = value_at(self, call.shape, call.compute)
    if not dtypes.is_float(op.dtype_of(x)):
        raise Unsupported(f"{call.name} of integers")
    step = op.like(10.0 ** abs(decimals), x)
    to, back = (op.multiply, op.divide) if decimals > 0 else (op.divide, op.multiply)
    return back(hlo.round_nearest_even(to(x, step)), step)
