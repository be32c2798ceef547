"""Normalisations and softmaxes, forward and backward."""

from __future__ import annotations

import math
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, axis, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers


def _mean(value: Value, dims: list[int]) -> Value:
    count = math.prod(op.shape_of(value)[dim] for dim in dims)
    sums = op.reduce(value, dims)
    return op.divide(sums, op.like(count, sums))


def _trailing(rank: int, normalized: Any) -> list[int]:
    return list(range(rank - len(normalized), rank))


@lowers("aten._softmax", "aten._safe_softmax")
def _softmax(call: Call, self: Any, dim: int, *_: Any, **__: Any) -> Value:
    along = axis(dim, self.rank)
    value = value_at(self, self.shape, call.compute)
    result, best, _total = softmax_parts(value, along)
    if call.base == "_safe_softmax":
        empty = op.compare("EQ", best, op.like(-math.inf, best))
        none = op.keep(empty, self.shape, [along])
        result = op.select(none, op.like(0, result), result)
    return result


def softmax_parts(value: Value, along: int) -> tuple[Value, Value, Value]:
    """Softmax along a dim, the maximum and the sum of exponentials (without the dim)."""
    shape = op.shape_of(value)
    if not shape:
        result, best, total = softmax_parts(op.reshape(value, (1,)), 0)
        return op.reshape(result, ()), best, total
    best = op.reduce(value, [along], "maximum")
    shifted = op.exponential(op.subtract(value, op.keep(best, shape, [along])))
    total = op.reduce(shifted, [along])
    return op.divide(shifted, op.keep(total, shape, [along])), best, total


@lowers("aten._softmax_backward_data")
def _softmax_backward(
    call: Call, grad_output: Any, output: Any, dim: int, *_: Any, **__: Any
) -> Value:
    grad, y, along = _with_dims(output, dim, grad_output)
    weighted = op.multiply(grad, y)
    total = op.keep(op.reduce(weighted, [along]), op.shape_of(y), [along])
    return op.reshape(op.subtract(weighted, op.multiply(y, total)), output.shape)


def _with_dims(output: Any, dim: int, grad_output: Any) -> tuple[Value, Value, int]:
    """A gradient and a result, and the dim counted from the front; [1] if they have none."""
    dtype = dtypes.compute_dtype(output.dtype)
    shape = output.shape or (1,)
    grad, y = (
        op.reshape(value_at(item, output.shape, dtype), shape) for item in (grad_output, output)
    )
    return grad, y, axis(dim, len(shape))


@lowers("aten._log_softmax")
def _log_softmax(call: Call, self: Any, dim: int, *_: Any, **__: Any) -> Value:
    shape = self.shape or (1,)
    along = axis(dim, len(shape))
    value = op.reshape(value_at(self, self.shape, call.compute), shape)
    best = op.keep(op.reduce(value, [along], "maximum"), shape, [along])
    shifted = op.subtract(value, best)
    total = op.log(op.reduce(op.exponential(shifted), [along]))
    return op.reshape(op.subtract(shifted, op.keep(total, shape, [along])), self.shape)


@lowers("aten._log_softmax_backward_data")
def _log_softmax_backward(
    call: Call, grad_output: Any, output: Any, dim: int, *_: Any, **__: Any
) -> Value:
    grad, y, along = _with_dims(output, dim, grad_output)
    total = op.keep(op.reduce(grad, [along]), op.shape_of(y), [along])
    return op.reshape(op.subtract(grad, op.multiply(op.exponential(y), total)), output.shape)


@lowers("aten._fused_rms_norm")
def _rms_norm(
    call: Call, input: Any, normalized_shape: Any, weight: Any, eps: Any = None
) -> list[Value]:
    dims = _trailing(input.rank, normalized_shape)
    dtype = call.compute
    x = value_at(input, input.shape, dtype)
    eps = _EPSILON[input.dtype] if eps is None else eps
    square = _mean(op.multiply(x, x), dims)
    scale = op.rsqrt(op.add(square, op.like(eps, square)))
    y = op.multiply(x, op.keep(scale, input.shape, dims))
    if weight is not None:
        y = op.multiply(y, value_at(weight, input.shape, dtype))
    return [y, op.reshape(scale, call.targets[1].shape)]


#: Machine epsilon by dtype: what torch takes for a missing eps.
_EPSILON = {
    "float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52,
}  # fmt: skip


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
    mean = _mean(x, dims)
    centred = op.subtract(x, op.keep(mean, shape, dims))
    variance = _mean(op.multiply(centred, centred), dims)
    scale = op.rsqrt(op.add(variance, op.like(eps, variance)))
    y = op.multiply(centred, op.keep(scale, shape, dims))
    if weight is not None:
        y = op.multiply(y, value_at(weight, shape, dtype))
    if bias is not None:
        y = op.add(y, value_at(bias, shape, dtype))
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
        along = op.keep(_mean(op.multiply(weighted, normal), dims), shape, dims)
        level = op.keep(_mean(weighted, dims), shape, dims)
        rest = op.subtract(op.subtract(weighted, level), op.multiply(normal, along))
        results.append(op.multiply(rest, scale))
    if output_mask[1] and weight is not None:
        results.append(op.reduce(op.multiply(grad, normal), outer))
    if output_mask[2] and bias is not None:
        results.append(op.reduce(grad, outer))
    return results


def _per_channel(value: Any, shape: tuple[int, ...], dtype: str) -> Value:
    """A vector [channels] over dim 1."""
    item = value if not hasattr(value, "value") else value.value
    return op.broadcast(op.convert(item, dtype), shape, [1])


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
        mean = _mean(x, dims)
        centred = op.subtract(x, op.keep(mean, shape, dims))
        variance = _mean(op.multiply(centred, centred), dims)
        if running_mean is not None:
            count = math.prod(shape[dim] for dim in dims)
            unbiased = op.multiply(variance, op.like(count / max(count - 1, 1), variance))
            for old, new in ((running_mean, mean), (running_var, unbiased)):
                before = op.convert(old.value, dtype)
                kept = op.multiply(before, op.like(1 - momentum, before))
                written.append(op.add(kept, op.multiply(new, op.like(momentum, new))))
    else:
        mean, variance = (op.convert(item.value, dtype) for item in (running_mean, running_var))
        centred = op.subtract(x, op.keep(mean, shape, dims))
    scale = op.rsqrt(op.add(variance, op.like(eps, variance)))
    y = op.multiply(centred, op.keep(scale, shape, dims))
    if weight is not None:
        y = op.multiply(y, _per_channel(weight, shape, dtype))
    if bias is not None:
        y = op.add(y, _per_channel(bias, shape, dtype))
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
        scale = op.rsqrt(op.add(variance, op.like(eps, variance)))
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


@lowers("aten.native_group_norm")
def _group_norm(
    call: Call, input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int,
    eps: float,
) -> list[Value]:  # fmt: skip
    shape = _in_groups(N, C, HxW, group)
    x = op.reshape(value_at(input, input.shape, call.compute), shape)
    mean = _mean(x, [2, 3])
    centred = op.subtract(x, op.keep(mean, shape, [2, 3]))
    variance = _mean(op.multiply(centred, centred), [2, 3])
    scale = op.rsqrt(op.add(variance, op.like(eps, variance)))
    y = op.multiply(centred, op.keep(scale, shape, [2, 3]))
    for item, combine in ((weight, op.multiply), (bias, op.add)):
        if item is not None:
            channels = op.reshape(op.convert(item.value, call.compute), shape[1:3])
            y = combine(y, op.broadcast(channels, shape, [1, 2]))
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
            channels = op.reshape(op.convert(weight.value, dtype), shape[1:3])
            weighted = op.multiply(grad, op.broadcast(channels, shape, [1, 2]))
        pulled = op.keep(_mean(op.multiply(weighted, normal), [2, 3]), shape, [2, 3])
        rest = op.subtract(weighted, op.keep(_mean(weighted, [2, 3]), shape, [2, 3]))
        rest = op.subtract(rest, op.multiply(normal, pulled))
        results.append(op.reshape(op.multiply(rest, scale), input.shape))
    for wanted, value in zip(output_mask[1:], (op.multiply(grad, normal), grad), strict=True):
        if wanted:
            results.append(op.reshape(op.reduce(value, [0, 3]), (C,)))
    return results
