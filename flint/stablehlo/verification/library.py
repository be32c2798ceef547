"""Checks of ops that libraries have a kernel for: FFTs, batch normalisation, the largest."""

from __future__ import annotations

from flint.graph.tensor_types import TensorType
from flint.stablehlo.read.records import Op
from flint.stablehlo.verification.kinds import (
    Check,
    Types,
    counted,
    fixed,
    require,
    same_rank,
    same_shape,
)


def _fft(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1)
    text = f"has the operand {ins[0]} for the result {outs[0]}"
    full = [item for item in (*ins, *outs) if not _complex(item)]
    require(len(full) < 2, text)
    if not fixed(*ins, *outs):
        return
    length = tuple(op.attr("fft_length", ()))
    whole = (full or ins)[0].shape
    require(0 < len(length) <= len(whole) and whole[-len(length) :] == length, text)
    # Of the transform of real numbers one half is kept: the other is its conjugate.
    half = (*whole[:-1], whole[-1] // 2 + 1 if whole[-1] else 0)
    for item in (*ins, *outs):
        require(item.shape == (half if full and _complex(item) else whole), text)


def _complex(item: TensorType) -> bool:
    return item.dtype.startswith("complex")


def _top_k(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1, 2)
    same_shape(outs[1], outs[0])
    same_rank(ins[0], outs[0])
    one, other = ins[0].shape, outs[0].shape
    fits = one[:-1] == other[:-1] and one[-1:] >= other[-1:]
    text = f"has the operand {ins[0]} for the result {outs[0]}"
    require(len(one) > 0 and (fits or not fixed(*ins, *outs)), text)


def _normalised(like_first: int, features: int, results: int) -> Check:
    """Operands and results: so many like the first operand, then one number per feature."""

    def check(_op: Op, ins: Types, outs: Types) -> None:
        counted(ins, outs, like_first + features, results)
        of_features = [*ins[1 : features + 1], *outs[1:]]
        for item in (*ins[features + 1 :], outs[0]):
            same_shape(ins[0], item)
        for item in of_features:
            same_shape(of_features[0], item)
        [size, *more] = of_features[0].shape or (0,)
        known = not more and size in ins[0].shape
        text = f"has the operands {ins[0]} and {of_features[0]}"
        require(known or not fixed(ins[0], of_features[0]), text)

    return check


def _random(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1, 2)
    same_shape(ins[0], outs[0])


CHECKS: dict[str, Check] = {
    "batch_norm_grad": _normalised(2, 3, 3),
    "batch_norm_inference": _normalised(1, 4, 1),
    "batch_norm_training": _normalised(1, 2, 3),
    "chlo.top_k": _top_k,
    "fft": _fft,
    "mhlo.topk": _top_k,
    "rng_bit_generator": _random,
}
