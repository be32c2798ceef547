"""Which operations of Inductor's loops compute something, and which are special functions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

#: Operations that compute nothing: they move, address or name values.
NOTHING = frozenset(
    ("load", "store", "store_reduction", "constant", "index_expr", "value_expr", "get_index",
     "indirect_indexing", "masked", "check_bounds", "identity", "output", "placeholder",
     "device_assert_async", "load_seed", "partial_accumulate", "to_dtype_bitcast")
)  # fmt: skip

#: Special functions, as the rules of StableHLO's elementwise ops count them.
TRANSCENDENTAL = frozenset(
    ("exp", "exp2", "expm1", "sqrt", "rsqrt", "cos", "sin", "tan", "tanh", "sigmoid", "log",
     "log1p", "log2", "log10", "pow", "erf", "erfc", "erfinv", "lgamma", "digamma", "acos",
     "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "sinh", "rand", "randn",
     "randint64", "rand_eager", "ndtr", "ndtri", "log_ndtr", "i0", "i0e", "i1", "i1e")
)  # fmt: skip


def _converted(value: Any, dtype: torch.dtype, *_: Any) -> Any:
    """Floats of less than 32 bits are computed in 32."""
    return torch.as_tensor(value).to(
        torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    )


def _masked(mask: Any, value: Any, other: Any) -> Any:
    return torch.where(mask, value, torch.tensor(other, dtype=value.dtype))


#: Operations of one place -> what computes them for all places, on known values.
APPLIED: Mapping[str, Callable[..., Any]] = {
    **{
        name: getattr(torch, name)
        for name in (
            "abs", "add", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
            "bitwise_right_shift", "bitwise_xor", "ceil", "cos", "eq", "exp", "exp2", "floor",
            "fmod", "ge", "gt", "isinf", "isnan", "le", "log", "log2", "logical_and",
            "logical_not", "logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "ne",
            "neg", "pow", "reciprocal", "relu", "remainder", "round", "rsqrt", "sigmoid", "sign",
            "sin", "sqrt", "square", "sub", "tanh", "trunc", "where",
        )
    },
    "and_": torch.bitwise_and,
    "or_": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "mod": torch.fmod,
    "truediv": torch.true_divide,
    "int_truediv": torch.true_divide,
    "div_rn": torch.true_divide,
    "floordiv": lambda first, second: torch.div(first, second, rounding_mode="floor"),
    "truncdiv": lambda first, second: torch.div(first, second, rounding_mode="trunc"),
    "ceil_to_int": lambda value, dtype: value.ceil().to(dtype),
    "floor_to_int": lambda value, dtype: value.floor().to(dtype),
    "round_to_int": lambda value, dtype: value.round().to(dtype),
    "trunc_to_int": lambda value, dtype: value.trunc().to(dtype),
    "constant": _converted,
    "identity": lambda value: value,
    "index_expr": _converted,
    "value_expr": _converted,
    "to_dtype": _converted,
    "masked": _masked,
    "part": lambda whole, index: whole[index],
}  # fmt: skip

#: Parts of index expressions -> what computes them.
INDICES: Mapping[str, Callable[..., Any]] = {
    "Add": lambda *parts: sum(parts),
    "Mul": lambda *parts: math.prod(parts),
    **dict.fromkeys(("Pow", "PowByNatural"), operator.pow),
    **dict.fromkeys(("FloorDiv", "CleanDiv"), operator.floordiv),
    **dict.fromkeys(("Mod", "PythonMod"), operator.mod),
    "ModularIndexing": lambda index, each, size: (index // each) % size,
    "Identity": lambda part: part,
}

#: Operations that need all places, or memory (``evaluated.py``).
DONE = frozenset(
    ("indirect_indexing", "load", "reduction", "scan", "sort", "store", "store_reduction")
)
