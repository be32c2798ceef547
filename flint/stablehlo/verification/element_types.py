"""Checks of element types: which of an op's operands and results must have the same.

The idea: a row per op encodes it in letters, one per operand, of which the last applies to all
further ones:

    T  the result's element type            P  one that is summed up in the result's
    C  the result's real part               i  integers         1  i1           ?  any
    M  one that the result's may come of: i1, integers, floating-point numbers, in this order; or
       complex ones of complex ones

    "select": "1TT"         "dynamic_slice": "Ti"           "concatenate": "T"

Before a compiler has optimised a module, floating-point types are equal or not; afterwards they may
differ in precision, as compilers for TPUs mix precisions in one op.
"""

from __future__ import annotations

from collections.abc import Callable

from flint.graph.tensor_types import DTYPE_BITS, TensorType
from flint.stablehlo.read.records import Op
from flint.stablehlo.verification.kinds import Check, Types, Unfit

#: Whether a value of the first element type may be used in place of the second.
_Same = Callable[[str, str], bool]
#: (op, types of its operands, types of its results, what is the same element type).
_Rule = Callable[[Op, Types, Types, _Same], None]


def _kind(dtype: str) -> str:
    """Types that differ only in precision are of one kind."""
    if dtype in ("i1", "token"):
        return dtype
    for start, kind in (("i", "signed"), ("ui", "unsigned"), ("complex", "complex")):
        if dtype.startswith(start):
            return kind
    return "float"


_KIND: dict[str, str] = {dtype: _kind(dtype) for dtype in DTYPE_BITS}
#: What a product may be of its operands: of a kind that does not come before theirs.
_ORDER = {"i1": 0, "signed": 1, "unsigned": 1, "float": 2}
_REAL = {"complex<f32>": "f32", "complex<f64>": "f64"}


def _exact(one: str, other: str) -> bool:
    return one == other


def _up_to_precision(one: str, other: str) -> bool:
    return one == other or _KIND.get(one) == _KIND.get(other) == "float"


def _require(holds: bool, operand: TensorType, result: TensorType) -> None:
    if not holds:
        raise Unfit(f"has the operand {operand} for the result {result}")


def _integers(operand: TensorType) -> None:
    if _KIND.get(operand.dtype) not in ("signed", "unsigned"):
        raise Unfit(f"has the operand {operand}, which does not contain integers")


def _check(letter: str, operand: TensorType, result: TensorType, same: _Same) -> None:
    one, other = operand.dtype, result.dtype
    if letter == "T":
        _require(same(one, other), operand, result)
    elif letter == "P":  # StableHLO's is_promotable
        wider = _KIND.get(one, one) == _KIND.get(other, other)
        wider = wider and DTYPE_BITS.get(one, 0) <= DTYPE_BITS.get(other, 0)
        _require(same(one, other) or wider, operand, result)
    elif letter == "C":
        _require(same(one, _REAL.get(other, "")), operand, result)
    elif letter == "M":
        _require(_may_come(_KIND.get(one, one), _KIND.get(other, other)), operand, result)
    elif letter == "i":
        _integers(operand)
    elif letter == "1" and one != "i1":
        raise Unfit(f"has the operand {operand}, which is not i1")


def _may_come(one: str, other: str) -> bool:
    if one in _ORDER and other in _ORDER:
        return _ORDER[one] <= _ORDER[other]
    return one == other


def _row(letters: str) -> _Rule:
    def rule(_op: Op, ins: Types, outs: Types, same: _Same) -> None:
        for number, operand in enumerate(ins):
            _check(letters[min(number, len(letters) - 1)], operand, outs[0], same)

    return rule


def _decides(_op: Op, ins: Types, outs: Types, same: _Same) -> None:
    """Operands of one element type make an i1."""
    for operand in ins[1:]:
        if not same(operand.dtype, ins[0].dtype):
            raise Unfit(f"has the operands {ins[0]} and {operand}")
    if outs[0].dtype != "i1":
        raise Unfit(f"has the result {outs[0]}, which is not i1")


def _is_finite(_op: Op, ins: Types, outs: Types, same: _Same) -> None:
    _decides(_op, ins, outs, same)
    if _KIND.get(ins[0].dtype) != "float":
        raise Unfit(f"has the operand {ins[0]}, which does not contain floating-point numbers")


def _real(_op: Op, ins: Types, outs: Types, same: _Same) -> None:
    _require(same(_REAL.get(ins[0].dtype, ins[0].dtype), outs[0].dtype), ins[0], outs[0])


def _paired(letter: str) -> _Rule:
    """Each operand, and each initial value behind the operands, goes into its own result."""

    def rule(_op: Op, ins: Types, outs: Types, same: _Same) -> None:
        for number, operand in enumerate(ins):
            _check(letter, operand, outs[number % len(outs)], same)

    return rule


def _permuted(_op: Op, ins: Types, outs: Types, same: _Same) -> None:
    for operand, result in zip(ins, outs, strict=False):  # in place, buffers are behind
        _check("T", operand, result, same)


def _scatter(_op: Op, ins: Types, outs: Types, same: _Same) -> None:
    count = len(outs)
    _integers(ins[count])
    for number, operand in enumerate((*ins[:count], *ins[count + 1 :])):
        _check("P", operand, outs[number % count], same)


def _fft(_op: Op, ins: Types, outs: Types, same: _Same) -> None:
    one, other = (_REAL.get(item.dtype, item.dtype) for item in (ins[0], outs[0]))
    _require(same(one, other), ins[0], outs[0])


def _top_k(_op: Op, ins: Types, outs: Types, same: _Same) -> None:
    _check("T", ins[0], outs[0], same)
    _integers(outs[1])


_ALIKE = (
    "add", "and", "atan2", "broadcast_in_dim", "cbrt", "ceil", "cholesky", "chlo.digamma",
    "chlo.erf", "chlo.erf_inv", "chlo.erfc", "chlo.lgamma", "chlo.square", "clamp", "concatenate",
    "cosine", "count_leading_zeros", "divide", "exponential", "exponential_minus_one", "floor",
    "log", "log_plus_one", "logistic", "maximum", "mhlo.acos", "mhlo.acosh", "mhlo.asin",
    "mhlo.asinh", "mhlo.atanh", "mhlo.copy", "mhlo.cosh", "mhlo.erf", "mhlo.mulhi", "mhlo.sinh",
    "minimum", "multiply", "negate", "not", "or", "pad", "popcnt", "power", "reduce_precision",
    "remainder", "reshape", "reverse", "round_nearest_afz", "round_nearest_even", "rsqrt",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sine", "slice", "sqrt",
    "subtract", "tan", "tanh", "transpose", "triangular_solve", "xor",
)  # fmt: skip

#: Op name -> rule; ops without one may have any element types.
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(_ALIKE, _row("T")),
    **dict.fromkeys(("all_gather", "all_to_all", "mhlo.all_to_all", "sort"), _paired("T")),
    **dict.fromkeys(("all_reduce", "reduce", "reduce_scatter", "reduce_window"), _paired("P")),
    **dict.fromkeys(("abs", "imag", "real"), _real),
    **dict.fromkeys(("collective_broadcast", "collective_permute"), _permuted),
    **dict.fromkeys(("convolution", "dot_general", "mhlo.scaled_dot"), _row("M")),
    "chlo.top_k": _top_k,
    "compare": _decides,
    "complex": _row("C"),
    "dynamic_slice": _row("Ti"),
    "dynamic_update_slice": _row("TTi"),
    "fft": _fft,
    "gather": _row("Ti"),
    "is_finite": _is_finite,
    "mhlo.topk": _top_k,
    "scatter": _scatter,
    "select": _row("1TT"),
    "set_dimension_size": _row("Ti"),
    "select_and_scatter": _row("P"),
}


def _check_of(rule: _Rule, same: _Same) -> Check:
    return lambda op, ins, outs: rule(op, ins, outs, same)


def _checks(same: _Same) -> dict[str, Check]:
    return {name: _check_of(rule, same) for name, rule in _RULES.items()}


#: Op name -> check; numbers of operands and results have been checked before.
CHECKS: dict[str, Check] = _checks(_exact)
#: A backend's bitcasts, which are reshapes, may read what they have as another type.
IN_OPTIMIZED: dict[str, Check] = {
    name: check for name, check in _checks(_up_to_precision).items() if name != "reshape"
}
