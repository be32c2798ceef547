"""Normalisations, forward and backward: centred, divided by the standard deviation, scaled.

The idea: the norms differ in the dims of their statistics and in where weight and bias lie; what
they have in common is here once, also for batch norm over several ranks (``synchronised.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers


def _mean(value: Value, dims: list[int]) -> Value:
    count = math.prod(op.shape_of(value)[dim] for dim in dims)
    sums = op.reduce(value, dims)
    return op.divide(sums, op.like(count, sums))


def _centred(x: Value, dims: list[int]) -> tuple[Value, Value, Value]:
    """The mean over dims, what is left without it, and the variance."""
    mean = _mean(x, dims)
    centred = op.subtract(x, op.keep(mean, op.shape_of(x), dims))
    return mean, centred, _mean(op.multiply(centred, centred), dims)


def inverse_deviation(variance: Value, eps: float) -> Value:
    """One over the root of a variance and ``eps``."""
    return op.rsqrt(op.add(variance, op.like(eps, variance)))


def updated(
    running: tuple[Any, Any], new: tuple[Value, Value], momentum: float, dtype: str
) -> list[Value]:
    """Running mean and variance, moved by the momentum towards the new ones."""
    values = []
    for old, value in zip(running, new, strict=True):
        before = op.convert(old.value, dtype)
        kept = op.multiply(before, op.like(1 - momentum, before))
        values.append(op.add(kept, op.multiply(value, op.like(momentum, value))))
    return values


def _input_gradient(weighted: Value, normal: Value, scale: Value, dims: list[int]) -> Value:
    """Of a norm's input: the gradient without what changes neither mean nor variance.

    Args:
        weighted: the gradient of the normal values.
        normal: centred, divided by the standard deviation.
        scale: one over the standard deviation, in the input's shape.
        dims: of the statistics.
    """
    shape = op.shape_of(weighted)
    along = op.keep(_mean(op.multiply(weighted, normal), dims), shape, dims)
    level = op.keep(_mean(weighted, dims), shape, dims)
    rest = op.subtract(op.subtract(weighted, level), op.multiply(normal, along))
    return op.multiply(rest, scale)


def scaled_and_moved(y: Value, weight: Any, bias: Any, spread: Callable[[Any], Value]) -> Value:
    """Times weight, plus bias, where there are any; ``spread`` gives them the shape of ``y``."""
    for item, combine in ((weight, op.multiply), (bias, op.add)):
        if item is not None:
            y = combine(y, spread(item))
    return y


def _trailing(rank: int, normalized: Any) -> list[int]:
    return list(range(rank - len(normalized), rank))


@lowers("aten._fused_rms_norm_backward")
def _rms_norm_backward(
    call: Call, grad_out: Any, input: Any, normalized_shape: Any, rstd: Any, weight: Any,
    output_mask: Any,
) -> list[Value]:  # fmt: skip
    dims = _trailing(input.rank, normalized_shape)
    dtype = dtypes.compute_dtype(input.dtype)
    shape = input.shape
    grad, x = value_at(grad_out, shape, dtype), value_at(input, shape, dtype)
    scale = value_at(rstd, shape, dtype)
    normal = op.multiply(x, scale)
    weighted = grad if weight is None else op.multiply(grad, value_at(weight, shape, dtype))
    results = []
    if output_mask[0]:
        mean = op.keep(_mean(op.multiply(weighted, normal), dims), shape, dims)
        results.append(op.multiply(op.subtract(weighted, op.multiply(normal, mean)), scale))
    if output_mask[1] and weight is not None:
        outer = [dim for dim in range(input.rank) if dim not in dims]
        results.append(op.reduce(op.multiply(grad, normal), outer))
    return results


@lowers("aten.native_layer_norm")
def _layer_norm(
    call: Call, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float
) -> list[Value]:
    dims = _trailing(input.rank, normalized_shape)
    shape, dtype = input.shape, call.compute
    x = value_at(input, shape, dtype)
    mean, centred, variance = _centred(x, dims)
    scale = inverse_deviation(variance, eps)
    y = op.multiply(centred, op.keep(scale, shape, dims))
    y = scaled_and_moved(y, weight, bias, lambda item: value_at(item, shape, dtype))
    statistics = zip((mean, scale), call.targets[1:], strict=True)
    return [y, *(op.reshape(value, spec.shape) for value, spec in statistics)]


@lowers("aten.native_layer_norm_backward")
def _layer_norm_backward(
    call: Call, grad_out: Any, input: Any, normalized_shape: Any, mean: Any, rstd: Any,
    weight: Any, bias: Any, output_mask: Any,
) -> list[Value]:  # fmt: skip
    dims = _trailing(input.rank, normalized_shape)
    outer = [dim for dim in range(input.rank) if dim not in dims]
    shape, dtype = input.shape, dtypes.compute_dtype(input.dtype)
    grad, x = value_at(grad_out, shape, dtype), value_at(input, shape, dtype)
    scale = value_at(rstd, shape, dtype)
    normal = op.multiply(op.subtract(x, value_at(mean, shape, dtype)), scale)
    weighted = grad if weight is None else op.multiply(grad, value_at(weight, shape, dtype))
    results = []
    if output_mask[0]:
        results.append(_input_gradient(weighted, normal, scale, dims))
    if output_mask[1] and weight is not None:
        results.append(op.reduce(op.multiply(grad, normal), outer))
    if output_mask[2] and bias is not None:
        results.append(op.reduce(grad, outer))
    return results


@lowers(
    "aten.native_batch_norm", "aten._native_batch_norm_legit",
    "aten._batch_norm_with_update", "aten._native_batch_norm_legit_no_training",
)  # fmt: skip
def _batch_norm(
    call: Call, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any,
    *rest: Any,
) -> list[Value | None]:  # fmt: skip
    """The running statistics are the first two targets when it trains with them."""
    if call.base == "_batch_norm_with_update":
        training, (momentum, eps) = True, rest
    elif call.base == "_native_batch_norm_legit_no_training":
        training, (momentum, eps) = False, rest
    else:
        training, momentum, eps = rest
    if call.overload == "no_stats":
        raise Unsupported(call.name)
    shape = input.shape
    dtype = dtypes.compute_dtype(input.dtype)
    dims = [dim for dim in range(input.rank) if dim != 1]
    x = value_at(input, shape, dtype)
    written: list[Value | None] = []
    if training:
        mean, centred, variance = _centred(x, dims)
        if running_mean is not None:
            count = math.prod(shape[dim] for dim in dims)
            unbiased = op.multiply(variance, op.like(count / max(count - 1, 1), variance))
            written += updated((running_mean, running_var), (mean, unbiased), momentum, dtype)
    else:
        mean, variance = (op.convert(item.value, dtype) for item in (running_mean, running_var))
        centred = op.subtract(x, op.keep(mean, shape, dims))
    scale = inverse_deviation(variance, eps)
    y = op.multiply(centred, op.keep(scale, shape, dims))
    y = scaled_and_moved(
        y, weight, bias, lambda item: op.keep(op.convert(item.value, dtype), shape, dims)
    )
    results: list[Value | None] = [*written, y]
    for spec, value in zip(call.targets[len(results) :], (mean, scale, None), strict=False):
        fits = value is not None and spec.shape == op.shape_of(value)
        results.append(value if fits else op.constant(0, spec.shape, spec.dtype))
    return results


@lowers("aten.native_batch_norm_backward")
def _batch_norm_backward(call: Call, *args: Any) -> list[Value]:
    (
        grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps,
        output_mask,
    ) = args  # fmt: skip
    shape = input.shape
    dtype = dtypes.compute_dtype(input.dtype)
    dims = [dim for dim in range(input.rank) if dim != 1]
    grad, x = value_at(grad_out, shape, dtype), value_at(input, shape, dtype)
    if train:
        mean, scale = (op.convert(item.value, dtype) for item in (save_mean, save_invstd))
    else:
        mean, variance = (op.convert(item.value, dtype) for item in (running_mean, running_var))
        scale = inverse_deviation(variance, eps)
    normal = op.multiply(op.subtract(x, op.keep(mean, shape, dims)), op.keep(scale, shape, dims))
    along = op.reduce(op.multiply(grad, normal), dims)
    level = op.reduce(grad, dims)
    results = []
    if output_mask[0]:
        count = math.prod(shape[dim] for dim in dims)
        rest = grad
        if train:
            share = op.like(1 / count, along)
            rest = op.subtract(rest, op.keep(op.multiply(level, share), shape, dims))
            pulled = op.keep(op.multiply(along, share), shape, dims)
            rest = op.subtract(rest, op.multiply(normal, pulled))
        factor = scale if weight is None else op.multiply(scale, op.convert(weight.value, dtype))
        results.append(op.multiply(rest, op.keep(factor, shape, dims)))
    if output_mask[1]:
        results.append(along)
    if output_mask[2]:
        results.append(level)
    return results


def _in_groups(count: int, channels: int, space: int, groups: int) -> tuple[int, ...]:
    """[batch, groups, channels per group, places]."""
    return count, groups, channels // groups, space


def _by_group(item: Any, shape: tuple[int, ...], dtype: str) -> Value:
    """A vector [channels] over groups and channels."""
    channels = op.reshape(op.convert(item.value, dtype), shape[1:3])
    return op.broadcast(channels, shape, [1, 2])


@lowers("aten.native_group_norm")
def _group_norm(
    call: Call, input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int,
    eps: float,
) -> list[Value]:  # fmt: skip
    shape = _in_groups(N, C, HxW, group)
    x = op.reshape(value_at(input, input.shape, call.compute), shape)
    mean, centred, variance = _centred(x, [2, 3])
    scale = inverse_deviation(variance, eps)
    y = op.multiply(centred, op.keep(scale, shape, [2, 3]))
    y = scaled_and_moved(y, weight, bias, lambda item: _by_group(item, shape, call.compute))
    return [op.reshape(y, call.shape), mean, scale]


@lowers("aten.native_group_norm_backward")
def _group_norm_backward(
    call: Call, grad_out: Any, input: Any, mean: Any, rstd: Any, weight: Any, N: int, C: int,
    HxW: int, group: int, output_mask: Any,
) -> list[Value]:  # fmt: skip
    shape = _in_groups(N, C, HxW, group)
    dtype = dtypes.compute_dtype(input.dtype)
    grad, x = (op.reshape(value_at(item, input.shape, dtype), shape) for item in (grad_out, input))
    level, scale = (op.keep(op.convert(item.value, dtype), shape, [2, 3]) for item in (mean, rstd))
    normal = op.multiply(op.subtract(x, level), scale)
    results = []
    if output_mask[0]:
        weighted = grad
        if weight is not None:
            weighted = op.multiply(grad, _by_group(weight, shape, dtype))
        rest = _input_gradient(weighted, normal, scale, [2, 3])
        results.append(op.reshape(rest, input.shape))
    for wanted, value in zip(output_mask[1:], (op.multiply(grad, normal), grad), strict=True):
        if wanted:
            results.append(op.reshape(op.reduce(value, [0, 3]), (C,)))
    return results
