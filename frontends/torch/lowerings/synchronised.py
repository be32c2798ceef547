"""Batch norm over several ranks, in its parts: own statistics, everybody's, the result.

Statistics are vectors [channels]; everybody's stand in rows, one per rank.
"""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Operand, value_at
from flint.frontends.torch.lowerings.normalisation import (
    inverse_deviation,
    scaled_and_moved,
    updated,
)
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers


def _opened(input: Operand) -> tuple[Value, str, list[int]]:
    """The input in the dtype of statistics, that dtype, and the dims without the channels."""
    dtype = dtypes.compute_dtype(input.dtype)
    dims = [dim for dim in range(input.rank) if dim != 1]
    return value_at(input, input.shape, dtype), dtype, dims


@lowers("aten.batch_norm_stats")
def _stats(call: Call, input: Any, eps: float) -> list[Value]:
    x, _, dims = _opened(input)
    total = op.reduce(x, dims)
    count = op.like(input.spec.elements / input.shape[1], total)
    mean = op.divide(total, count)
    centred = op.subtract(x, op.keep(mean, input.shape, dims))
    variance = op.divide(op.reduce(op.multiply(centred, centred), dims), count)
    return [mean, inverse_deviation(variance, eps)]


@lowers("aten.batch_norm_gather_stats_with_counts")
def _gathered(
    call: Call, input: Any, mean: Any, invstd: Any, running_mean: Any, running_var: Any,
    momentum: float, eps: float, counts: Any,
) -> list[Value]:  # fmt: skip
    """The running statistics are the first targets where they are written."""
    dtype = dtypes.compute_dtype(input.dtype)
    shape = mean.shape
    means, scales = (value_at(item, shape, dtype) for item in (mean, invstd))
    weights = op.broadcast(op.convert(counts.value, dtype), shape, [0])
    total = op.reduce(weights, [0])
    whole = op.divide(op.reduce(op.multiply(weights, means), [0]), total)
    one, least = op.like(1, scales), op.like(eps, scales)
    own = op.subtract(op.divide(one, op.multiply(scales, scales)), least)
    apart = op.subtract(means, op.keep(whole, shape, [0]))
    spread = op.multiply(weights, op.add(own, op.multiply(apart, apart)))
    variance = op.divide(op.reduce(spread, [0]), total)
    results = [whole, inverse_deviation(variance, eps)]
    if len(call.targets) == len(results):
        return results
    free = op.subtract(total, op.like(1, total))
    unbiased = op.divide(op.multiply(variance, total), free)
    return [*updated((running_mean, running_var), (whole, unbiased), momentum, dtype), *results]


@lowers("aten.batch_norm_elemt")
def _normed(
    call: Call, input: Any, weight: Any, bias: Any, mean: Any, invstd: Any, eps: float
) -> Value:
    x, dtype, dims = _opened(input)
    level, scale = (op.keep(op.convert(item.value, dtype), input.shape, dims)
                    for item in (mean, invstd))  # fmt: skip
    y = op.multiply(op.subtract(x, level), scale)
    return scaled_and_moved(
        y, weight, bias, lambda item: op.keep(op.convert(item.value, dtype), input.shape, dims)
    )


@lowers("aten.batch_norm_backward_reduce")
def _reduced(
    call: Call, grad_out: Any, input: Any, mean: Any, invstd: Any, weight: Any, input_g: bool,
    weight_g: bool, bias_g: bool,
) -> list[Value]:  # fmt: skip
    x, dtype, dims = _opened(input)
    grad = value_at(grad_out, input.shape, dtype)
    level = op.keep(op.convert(mean.value, dtype), input.shape, dims)
    sums = op.reduce(grad, dims)
    along = op.reduce(op.multiply(grad, op.subtract(x, level)), dims)
    scaled = op.multiply(along, op.convert(invstd.value, dtype))
    found = [sums, along, scaled, sums]
    wanted = [input_g, input_g, weight_g, bias_g]
    none = [op.constant(0, (0,), dtype)] * 4
    chosen = [a if each else b for a, b, each in zip(found, none, wanted, strict=True)]
    return chosen[: len(call.targets)]


@lowers("aten.batch_norm_backward_elemt")
def _backward(
    call: Call, grad_out: Any, input: Any, mean: Any, invstd: Any, weight: Any, sum_dy: Any,
    sum_dy_xmu: Any, count: Any,
) -> Value:  # fmt: skip
    x, dtype, dims = _opened(input)
    shape = input.shape
    grad = value_at(grad_out, shape, dtype)
    level, scale, sums, along = (
        op.convert(item.value, dtype) for item in (mean, invstd, sum_dy, sum_dy_xmu)
    )
    total = op.reduce(op.convert(count.value, dtype), list(range(count.rank)))
    total = op.broadcast(total, op.shape_of(sums), [])
    slope = op.divide(op.multiply(op.multiply(scale, scale), along), total)
    rest = op.subtract(grad, op.keep(op.divide(sums, total), shape, dims))
    centred = op.subtract(x, op.keep(level, shape, dims))
    rest = op.subtract(rest, op.multiply(centred, op.keep(slope, shape, dims)))
    factor = scale if weight is None else op.multiply(scale, op.convert(weight.value, dtype))
    return op.multiply(rest, op.keep(factor, shape, dims))
