"""Checks of products and reductions."""

from __future__ import annotations

from collections.abc import Sequence

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


def _dot(op: Op, ins: Types, outs: Types) -> None:
    counted(ins[:2], outs, 2)  # scaled products have their scales behind
    lhs, rhs = ins[0], ins[1]
    batch = op.attr("lhs_batching", ()), op.attr("rhs_batching", ())
    summed = op.attr("lhs_contracting", ()), op.attr("rhs_contracting", ())
    sizes = [
        (_sizes(lhs, of_lhs), _sizes(rhs, of_rhs)) for of_lhs, of_rhs in (batch, summed)
    ]  # fmt: skip
    if not fixed(*ins, *outs):
        return
    text = f"has the operands {lhs} and {rhs} for the result {outs[0]}"
    require(all(one == other for one, other in sizes), text)
    free = [
        tuple(size for dim, size in enumerate(item.shape) if dim not in taken)
        for item, taken in ((lhs, {*batch[0], *summed[0]}), (rhs, {*batch[1], *summed[1]}))
    ]
    require(outs[0].shape == sizes[0][0] + free[0] + free[1], text)


def _sizes(item: TensorType, dims: Sequence[int]) -> tuple[int, ...]:
    known = all(0 <= dim < len(item.shape) for dim in dims) and len(set(dims)) == len(dims)
    require(known, f"names the dims {tuple(dims)} of {item}")
    return tuple(item.shape[dim] for dim in dims)


def _convolution(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 2)
    for item in (*ins, *outs):
        same_rank(item, outs[0])
    where = op.attr("input_spatial", ()), op.attr("kernel_spatial", ())
    spatial = op.attr("output_spatial", ())
    require(len(where[0]) == len(where[1]) == len(spatial), "has other numbers of spatial dims")
    if not fixed(*ins, *outs):
        return
    sizes, windows = _sizes(ins[0], where[0]), _sizes(ins[1], where[1])
    _windows(op, sizes, windows, _sizes(outs[0], spatial), ("lhs_dilation", "rhs_dilation"))


def _windows(
    op: Op,
    sizes: Sequence[int],
    windows: Sequence[int],
    results: Sequence[int],
    dilations: tuple[str, str],
) -> None:
    """Check how many windows there are along each dim."""
    rank = len(sizes)
    ones = (1,) * rank
    strides = op.attr("strides") or ones
    base, inside = (op.attr(name) or ones for name in dilations)
    padding = op.attr("padding") or ((0, 0),) * rank
    given = {len(part) for part in (windows, results, strides, base, inside, padding)}
    require(given == {rank}, "has windows of another number of dims")
    rows = zip(sizes, windows, results, strides, base, inside, padding, strict=True)
    for size, window, result, stride, spread, gap, (low, high) in rows:
        require(stride > 0 and spread > 0 and gap > 0, "has a stride or dilation below 1")
        padded = (size - 1) * spread + 1 if size else 0
        covered = (window - 1) * gap + 1 if window else 0
        left = padded + low + high - covered
        expected = left // stride + 1 if left >= 0 and window else 0
        require(result == expected, f"has {result} windows along a dim of {size}, not {expected}")


def _reduce(_op: Op, ins: Types, outs: Types) -> None:
    require(len(ins) == 2 * len(outs) > 0, f"has {len(ins)} operands and {len(outs)} results")
    for item, result in zip(ins, outs, strict=False):
        same_shape(item, ins[0])
        dims = iter(item.shape)
        kept = all(size in dims for size in result.shape)  # in this order
        text = f"does not reduce the operand {item} to the result {result}"
        require(kept or not fixed(item, result), text)


def _reduce_window(op: Op, ins: Types, outs: Types) -> None:
    require(len(ins) == 2 * len(outs) > 0, f"has {len(ins)} operands and {len(outs)} results")
    windows = op.attr("window_dimensions", ())
    for item, result in zip(ins, outs, strict=False):
        same_rank(item, result)
        if fixed(item, result):
            dilations = "base_dilations", "window_dilations"
            _windows(op, item.shape, windows, result.shape, dilations)


def _first(operands: int, which: int) -> Check:
    """The result has the shape of one of the operands."""

    def check(_op: Op, ins: Types, outs: Types) -> None:
        counted(ins, outs, operands)
        same_shape(ins[which], outs[0])

    return check


CHECKS: dict[str, Check] = {
    "convolution": _convolution,
    "dot_general": _dot,
    "mhlo.scaled_dot": _dot,
    "reduce": _reduce,
    "reduce_window": _reduce_window,
    "select_and_scatter": _first(3, 0),
    "triangular_solve": _first(2, 1),
}
