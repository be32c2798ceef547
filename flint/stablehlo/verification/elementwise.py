"""Checks of elementwise ops: operands and result have the same shape."""

from __future__ import annotations

from flint.stablehlo.read.records import Op
from flint.stablehlo.verification.kinds import Check, Types, counted, same_shape, scalar

_UNARY = (
    "abs", "cbrt", "ceil", "convert", "cosine", "count_leading_zeros", "exponential",
    "exponential_minus_one", "floor", "imag", "is_finite", "log", "log_plus_one", "logistic",
    "negate", "not", "popcnt", "real", "reduce_precision", "round_nearest_afz",
    "round_nearest_even", "rsqrt", "sign", "sine", "sqrt", "tan", "tanh",
    "chlo.erf", "chlo.erfc", "chlo.erf_inv", "chlo.lgamma", "chlo.digamma", "chlo.square",
    "mhlo.acos", "mhlo.acosh", "mhlo.asin", "mhlo.asinh", "mhlo.atanh", "mhlo.cosh", "mhlo.erf",
    "mhlo.sinh",
)  # fmt: skip
_BINARY = (
    "add", "and", "atan2", "compare", "complex", "divide", "maximum", "minimum", "multiply", "or",
    "power", "remainder", "shift_left", "shift_right_arithmetic", "shift_right_logical", "subtract",
    "xor", "mhlo.mulhi", "mhlo.stochastic_convert",
)  # fmt: skip


def _of(operands: int) -> Check:
    def check(_op: Op, ins: Types, outs: Types) -> None:
        counted(ins, outs, operands)
        for item in ins:
            same_shape(item, outs[0])

    return check


def _select(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 3)
    same_shape(ins[1], outs[0])
    same_shape(ins[2], outs[0])
    if ins[0].shape:
        same_shape(ins[0], outs[0], "predicate")


def _clamp(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 3)
    same_shape(ins[1], outs[0])
    for bound in (ins[0], ins[2]):
        if bound.shape:
            same_shape(bound, outs[0], "bound")


def _rng(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins[:2], outs, 2)  # StableHLO's has the shape behind
    scalar(ins[0])
    scalar(ins[1])


def _sort(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, len(ins), len(ins))
    for one, other in zip(ins, outs, strict=True):
        same_shape(one, other)
        same_shape(one, outs[0])


CHECKS: dict[str, Check] = {
    **dict.fromkeys(_UNARY, _of(1)),
    **dict.fromkeys(_BINARY, _of(2)),
    "clamp": _clamp,
    "rng": _rng,
    "select": _select,
    "sort": _sort,
}
