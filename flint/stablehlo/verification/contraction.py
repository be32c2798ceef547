"""Checks of products and reductions."""

from __future__ import annotations

from flint.graph.tensor_types import TensorType
from flint.stablehlo.read.records import Op
from flint.stablehlo.verification.kinds import (
    Check,
    Types,
    counted,
    fixed,
    require,
    same_shape,
    scalar,
    sizes_of,
)


def _dot(op: Op, ins: Types, outs: Types) -> None:
    counted(ins[:2], outs, 2)  # scaled products have their scales behind
    lhs, rhs = ins[0], ins[1]
    batch = op.attr("lhs_batching", ()), op.attr("rhs_batching", ())
    summed = op.attr("lhs_contracting", ()), op.attr("rhs_contracting", ())
    sizes = [
        (sizes_of(lhs, of_lhs), sizes_of(rhs, of_rhs)) for of_lhs, of_rhs in (batch, summed)
    ]  # fmt: skip
    for number, item in enumerate((lhs, rhs)):
        sizes_of(item, (*batch[number], *summed[number]))  # no dim in both
    if not fixed(*ins, *outs):
        return
    text = f"has the operands {lhs} and {rhs} for the result {outs[0]}"
    require(all(one == other for one, other in sizes), text)
    free = [
        tuple(size for dim, size in enumerate(item.shape) if dim not in taken)
        for item, taken in ((lhs, {*batch[0], *summed[0]}), (rhs, {*batch[1], *summed[1]}))
    ]
    require(outs[0].shape == sizes[0][0] + free[0] + free[1], text)


def _reduce(op: Op, ins: Types, outs: Types) -> None:
    require(len(ins) == 2 * len(outs) > 0, f"has {len(ins)} operands and {len(outs)} results")
    dims = op.attr("dimensions", ())
    for item, initial, result in zip(ins, ins[len(outs) :], outs, strict=False):
        same_shape(item, ins[0])
        scalar(initial)
        sizes_of(item, dims)
        kept = tuple(size for dim, size in enumerate(item.shape) if dim not in dims)
        text = f"does not reduce the operand {item} to the result {result}"
        require(kept == result.shape or not fixed(item, result), text)


def _triangular_solve(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 2)
    same_shape(ins[1], outs[0])
    _square(ins[0])


def _cholesky(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1)
    same_shape(ins[0], outs[0])
    _square(ins[0])


def _square(item: TensorType) -> None:
    square = len(item.shape) > 1 and item.shape[-1] == item.shape[-2]
    require(
        square or not fixed(item),
        f"has the operand {item}, which does not contain square matrices",
    )


CHECKS: dict[str, Check] = {
    "cholesky": _cholesky,
    "dot_general": _dot,
    "mhlo.scaled_dot": _dot,
    "reduce": _reduce,
    "triangular_solve": _triangular_solve,
}
