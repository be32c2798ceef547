"""Which operations of Inductor's loops compute something, and which are special functions."""

from __future__ import annotations

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
