"""Checks of convolutions and other ops that slide a window."""

from __future__ import annotations

from collections.abc import Sequence

from flint.stablehlo.read.records import Op
from flint.stablehlo.verification.kinds import (
    Check,
    Types,
    counted,
    fixed,
    require,
    same_rank,
    same_shape,
    scalar,
    sizes_of,
)


def _convolution(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 2)
    for item in (*ins, *outs):
        same_rank(item, outs[0])
    where = op.attr("input_spatial", ()), op.attr("kernel_spatial", ())
    spatial = op.attr("output_spatial", ())
    require(
        len(where[0]) == len(where[1]) == len(spatial),
        "has operands with different numbers of spatial dims",
    )
    if not fixed(*ins, *outs):
        return
    _features(op, ins, outs)
    sizes, windows = sizes_of(ins[0], where[0]), sizes_of(ins[1], where[1])
    _windows(op, sizes, windows, sizes_of(outs[0], spatial), ("lhs_dilation", "rhs_dilation"))


def _features(op: Op, ins: Types, outs: Types) -> None:
    """Check the dims over which no window slides."""
    if op.attr("input_batch") is None:
        return
    named = [
        sizes_of(item, (op.attr(one), op.attr(other), *op.attr(spatial, ())))[:2]
        for item, one, other, spatial in (
            (ins[0], "input_batch", "input_feature", "input_spatial"),
            (ins[1], "kernel_input_feature", "kernel_output_feature", "kernel_spatial"),
            (outs[0], "output_batch", "output_feature", "output_spatial"),
        )
    ]
    (batch, features), (used, made), result = named
    groups, batches = op.attr("feature_group_count", 1), op.attr("batch_group_count", 1)
    text = f"has the operands {ins[0]} and {ins[1]} for the result {outs[0]}"
    if groups > 1 or batches > 1:
        text += f" in {groups} groups of features and {batches} of the batch"
    require(groups > 0 and batches > 0 and made % groups == 0 == made % batches, text)
    require(features == used * groups and result == (batch // batches, made), text)
    require(batch % batches == 0, text)


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
    require(given == {rank}, "has windows with a different number of dims")
    rows = zip(sizes, windows, results, strides, base, inside, padding, strict=True)
    for size, window, result, stride, spread, gap, (low, high) in rows:
        require(stride > 0 and spread > 0 and gap > 0, "has a stride or dilation below 1")
        padded = (size - 1) * spread + 1 if size else 0
        covered = (window - 1) * gap + 1 if window else 0
        left = padded + low + high - covered
        expected = left // stride + 1 if left >= 0 and window else 0
        require(result == expected, f"has {result} windows along a dim of {size}, not {expected}")


def _reduce_window(op: Op, ins: Types, outs: Types) -> None:
    require(len(ins) == 2 * len(outs) > 0, f"has {len(ins)} operands and {len(outs)} results")
    windows = op.attr("window_dimensions", ())
    for item, initial, result in zip(ins, ins[len(outs) :], outs, strict=False):
        same_rank(item, result)
        scalar(initial)
        if fixed(item, result):
            dilations = "base_dilations", "window_dilations"
            _windows(op, item.shape, windows, result.shape, dilations)


def _select_and_scatter(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 3)
    same_shape(ins[0], outs[0])
    same_rank(ins[1], outs[0])
    scalar(ins[2])
    if fixed(*ins):
        _windows(op, ins[0].shape, op.attr("window_dimensions", ()), ins[1].shape, ("", ""))


CHECKS: dict[str, Check] = {
    "convolution": _convolution,
    "reduce_window": _reduce_window,
    "select_and_scatter": _select_and_scatter,
}
