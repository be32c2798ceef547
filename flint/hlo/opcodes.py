"""HLO opcodes -> StableHLO ops: one row per opcode.

A row has the record's name, how its attributes are read, and whether the
computations that the instruction calls become its regions.  Opcodes that are control flow, tuple
plumbing or halves of an asynchronous operation have a function in ``structure.py`` instead.

    ROWS["exponential-minus-one"] -> Row("exponential_minus_one", None, False)
"""

from __future__ import annotations

from typing import NamedTuple

from flint.hlo import attributes as read
from flint.hlo import collectives as exchange
from flint.hlo.context import Decoder


class Row(NamedTuple):
    """How an opcode becomes a record.

    Attributes:
        name: the record's name.
        decode: reads the attributes; None when no rule needs any.
        regions: the called computations are the op's regions.
    """

    name: str
    decode: Decoder | None = None
    regions: bool = False


#: Opcodes whose StableHLO name is the same words with underscores, and that need no attributes.
_SAME_WORDS = (
    "abs", "add", "and", "atan2", "batch-norm-grad", "batch-norm-inference",
    "batch-norm-training", "bitcast-convert", "cbrt", "ceil", "cholesky", "clamp", "complex",
    "convert", "cosine", "count-leading-zeros", "divide", "dynamic-reshape",
    "dynamic-update-slice", "exponential", "exponential-minus-one", "floor",
    "get-dimension-size", "imag", "infeed", "is-finite", "log", "log-plus-one", "logistic",
    "maximum", "minimum", "multiply", "negate", "not", "or", "outfeed", "partition-id",
    "popcnt", "power", "real", "reduce-precision", "remainder", "replica-id", "reshape", "rng",
    "rng-bit-generator", "round-nearest-afz", "round-nearest-even", "rsqrt", "select",
    "set-dimension-size", "shift-left", "shift-right-arithmetic", "shift-right-logical", "sign",
    "sine", "sqrt", "subtract", "tan", "tanh", "triangular-solve", "xor",
)  # fmt: skip

#: Opcodes without a StableHLO op: XLA's conversion leaves them in the mhlo dialect.
_MHLO = ("acos", "acosh", "asin", "asinh", "atanh", "cosh", "erf", "mulhi", "sinh")

_RENAMED = {
    "bitcast": "reshape",
    "copy": "mhlo.copy",
    "rng-get-and-update-state": "mhlo.xla.rng_get_and_update_state",
    "topk": "mhlo.topk",
    "stochastic-convert": "mhlo.stochastic_convert",
    "opt-barrier": "optimization_barrier",
}

_WITH_ATTRIBUTES: dict[str, Row] = {
    "all-gather": Row("all_gather", exchange.collective),
    "all-reduce": Row("all_reduce", exchange.collective, True),
    "all-to-all": Row("all_to_all", exchange.collective),
    "broadcast": Row("broadcast_in_dim", read.dimensions),
    "collective-broadcast": Row("collective_broadcast", exchange.collective),
    "collective-permute": Row("collective_permute", exchange.point_to_point),
    "compare": Row("compare", read.compare),
    "concatenate": Row("concatenate", read.dimension),
    "constant": Row("constant", read.CONSTANT),
    "convolution": Row("convolution", read.convolution),
    "custom-call": Row("custom_call", read.custom_call, True),
    "dot": Row("dot_general", read.DOT),
    "dynamic-slice": Row("dynamic_slice", read.dynamic_slice),
    "fft": Row("fft", read.fft),
    "gather": Row("gather", read.gather),
    "iota": Row("iota", read.dimension),
    "map": Row("map", None, True),
    "pad": Row("pad", read.PAD),
    "ragged-all-to-all": Row("custom_call", exchange.ragged_all_to_all),
    "ragged-dot": Row("mhlo.ragged_dot", read.RAGGED_DOT),
    "reduce": Row("reduce", read.dimensions, True),
    "reduce-scatter": Row("reduce_scatter", exchange.collective, True),
    "reduce-window": Row("reduce_window", read.WINDOW, True),
    "reverse": Row("reverse", read.dimensions),
    "scaled-dot": Row("mhlo.scaled_dot", read.DOT),
    "scan": Row("mhlo.scan", None, True),
    "scatter": Row("scatter", read.SCATTER, True),
    "select-and-scatter": Row("select_and_scatter", read.select_and_scatter, True),
    "slice": Row("slice", read.slice_limits),
    "sort": Row("sort", read.dimension, True),
    "transpose": Row("transpose", read.dimensions),
}

ROWS: dict[str, Row] = {
    **{opcode: Row(opcode.replace("-", "_")) for opcode in _SAME_WORDS},
    **{opcode: Row(f"mhlo.{opcode}") for opcode in _MHLO},
    **{opcode: Row(name) for opcode, name in _RENAMED.items()},
    **_WITH_ATTRIBUTES,
}


#: Rows for an optimised module: remaining copies, and reshapes that are not bitcasts, are kernels.
OPTIMIZED_ROWS: dict[str, Row] = ROWS | {
    "copy": Row("mhlo.copy", read.made),
    "reshape": Row("mhlo.copy", read.made),
}
