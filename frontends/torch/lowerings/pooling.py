"""Pooling over windows of the last dims, forward and backward."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.reduction import window
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo


def _spatial(call: Call) -> int:
    """How many dims a window has: "avg_pool3d_backward" has 3."""
    return 3 if "pool3d" in call.base else 2


def _each(values: Any, count: int, default: Any = None) -> list[int]:
    """An option per dim of the window, of which PyTorch takes one for all, too."""
    if isinstance(values, int):
        return [values] * count
    if not values:
        return list(default)
    return list(values) * (count if len(values) == 1 else 1)


def _high(size: int, out: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """Padding behind that a result of a given size needs; more than ``pad`` in ceil mode."""
    return (out - 1) * stride + dilation * (kernel - 1) + 1 - size - pad


def _windows(
    shape: tuple[int, ...], out: tuple[int, ...], kernel: list[int], stride: list[int],
    pad: list[int], dilation: list[int],
) -> tuple[list[int], list[int], list[tuple[int, int]], list[int]]:  # fmt: skip
    lead = len(shape) - len(kernel)
    high = [
        _high(shape[lead + at], out[lead + at], kernel[at], stride[at], pad[at], dilation[at])
        for at in range(len(kernel))
    ]
    ones, none = [1] * lead, [(0, 0)] * lead
    pads = [*none, *zip(pad, high, strict=True)]
    return ones + kernel, ones + stride, pads, ones + dilation


@lowers("aten.max_pool2d_with_indices")
def _max_pool(
    call: Call, self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False,
) -> list[Value]:  # fmt: skip
    """The maxima, and where they are in the plane: the first place of the window that has it."""
    kernel = _each(kernel_size, 2)
    step, pad, dilation = _each(stride, 2, kernel), _each(padding, 2), _each(dilation, 2)
    size, pitch, pads, reach = _windows(self.shape, call.shape, kernel, step, pad, dilation)
    return _best(call, self, size, pitch, pads, reach, 2)


@lowers("aten.adaptive_max_pool3d")
def _adaptive_max_pool(call: Call, self: Any, output_size: Any) -> list[Value]:
    """As ``max_pool`` over windows that lie side by side."""
    dims = _spatial(call)
    kernel = _bins(self.shape, call.shape, dims)
    ones = [1] * self.rank
    size = ones[dims:] + kernel
    return _best(call, self, size, size, [(0, 0)] * self.rank, ones, dims)


def _best(
    call: Call, self: Any, size: list[int], stride: list[int], padding: list[tuple[int, int]],
    dilation: list[int], dims: int,
) -> list[Value]:  # fmt: skip
    """The maxima of windows, and where they are in the plane."""
    at = self.rank - 1
    place = op.iota(self.shape, at)
    for dim in range(1, dims):
        step = math.prod(self.shape[self.rank - dim :])
        along = op.multiply(op.iota(self.shape, at - dim), op.constant(step, self.shape, "int64"))
        place = op.add(along, place)
    kinds = [op.tensor(call.shape, self.dtype), op.tensor(call.shape, "int64")]
    starts = [op.initial("maximum", self.dtype), op.constant(math.prod(self.shape), (), "int64")]
    made = hlo.ReduceWindowOp(
        kinds, [self.value, place], starts, op.integers(size),
        window_strides=op.integers(stride), window_dilations=op.integers(dilation),
        padding=np.array(padding, np.int64),
    )  # fmt: skip
    _fill_best(made.regions[0], self.dtype)
    return list(made.results)


def _fill_best(region: Any, dtype: str) -> None:
    """The greater of two values with its place; of equal ones, the first."""
    from flint.stablehlo.read.bindings import ir

    kinds = [op.tensor((), dtype), op.tensor((), "int64")]
    block = region.blocks.append(*kinds, *kinds)
    a, at_a, b, at_b = block.arguments
    with ir.InsertionPoint(block):
        greater = op.compare("GT", a, b)
        first = op.and_(op.compare("EQ", a, b), op.compare("LT", at_a, at_b))
        chosen = op.or_(greater, first)
        hlo.return_([op.select(chosen, a, b), op.select(chosen, at_a, at_b)])


@lowers(
    "aten.max_pool2d_with_indices_backward",
    "aten.max_pool3d_with_indices_backward",
    "aten.adaptive_max_pool2d_backward",
    "aten.adaptive_max_pool3d_backward",
)
def _max_pool_backward(call: Call, grad_output: Any, self: Any, *args: Any) -> Value:
    """Gradients added up where the maxima were."""
    indices, dims = args[-1], _spatial(call)
    lead = self.shape[:-dims]
    planes, plane = math.prod(lead), math.prod(self.shape[-dims:])
    count = math.prod(grad_output.shape[-dims:])
    dtype = dtypes.compute_dtype(call.dtype)
    grad = op.reshape(value_at(grad_output, grad_output.shape, dtype), (planes * count,))
    at = op.reshape(indices.value, (planes, count))
    base = op.multiply(op.iota((planes, count), 0), op.constant(plane, (planes, count), "int64"))
    place = op.reshape(op.add(at, base), (planes * count, 1))
    empty = op.constant(0, (planes * plane,), dtype)
    return op.reshape(op.scatter(empty, place, grad, "add"), call.shape)


def _shares(
    shape: tuple[int, ...], out: tuple[int, ...], kernel: list[int], stride: list[int],
    pad: list[int], include: bool, divisor: int | None, dtype: str,
) -> Value:  # fmt: skip
    """What each window is divided by, over its plane [h, w] or [d, h, w]."""
    dims = len(kernel)
    if divisor is not None:
        return op.constant(divisor, out[-dims:], dtype)
    counts = []
    for at in range(dims):
        size = shape[at - dims]
        first = np.arange(out[at - dims]) * stride[at] - pad[at]
        last = np.minimum(first + kernel[at], size + pad[at])
        if not include:
            first, last = np.maximum(first, 0), np.minimum(last, size)
        counts.append(last - first)
    table = functools.reduce(np.multiply.outer, counts).astype(np.float64)
    if (table == table.flat[0]).all():
        return op.constant(float(table.flat[0]), out[-dims:], dtype)
    return op.convert(op.literal(table, "float64"), dtype)


@lowers("aten.avg_pool2d", "aten.avg_pool3d")
def _avg_pool(
    call: Call, self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
) -> Value:  # fmt: skip
    dims = _spatial(call)
    kernel = _each(kernel_size, dims)
    step, pad = _each(stride, dims, kernel), _each(padding, dims)
    size, pitch, pads, reach = _windows(self.shape, call.shape, kernel, step, pad, [1] * dims)
    value = value_at(self, self.shape, call.compute)
    sums = window(value, size, pitch, pads, "add", reach)
    share = _shares(
        self.shape, call.shape, kernel, step, pad, count_include_pad, divisor_override,
        call.compute,
    )  # fmt: skip
    return op.divide(sums, op.broadcast(share, call.shape))


@lowers("aten.avg_pool2d_backward", "aten.avg_pool3d_backward")
def _avg_pool_backward(
    call: Call, grad_output: Any, self: Any, kernel_size: Any, stride: Any, padding: Any,
    ceil_mode: bool, count_include_pad: bool, divisor_override: Any,
) -> Value:  # fmt: skip
    dims = _spatial(call)
    kernel = _each(kernel_size, dims)
    step, pad = _each(stride, dims, kernel), _each(padding, dims)
    dtype = call.compute
    out = grad_output.shape
    share = _shares(self.shape, out, kernel, step, pad, count_include_pad, divisor_override, dtype)
    grad = op.divide(value_at(grad_output, out, dtype), op.broadcast(share, out))
    lead = self.rank - dims
    low, high, inside = [0] * self.rank, [0] * self.rank, [0] * self.rank
    for at in range(dims):
        spread = (out[lead + at] - 1) * step[at] + 1
        low[lead + at] = kernel[at] - 1 - pad[at]
        high[lead + at] = self.shape[lead + at] + kernel[at] - 1 - spread - low[lead + at]
        inside[lead + at] = step[at] - 1
    spread_out = op.pad(grad, low, high, 0, inside)
    size = [1] * lead + kernel
    return window(spread_out, size, [1] * self.rank, [(0, 0)] * self.rank, "add")


def _bins(shape: tuple[int, ...], out: tuple[int, ...], dims: int) -> list[int]:
    sizes = []
    for at in range(-dims, 0):
        if shape[at] % out[at]:
            raise Unsupported(f"adaptive pooling of {shape[at]} to {out[at]}")
        sizes.append(shape[at] // out[at])
    return sizes


@lowers("aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d")
def _adaptive_avg_pool(call: Call, self: Any, output_size: Any) -> Value:
    return _avg_pool(call, self, _bins(self.shape, call.shape, _spatial(call)))


@lowers("aten._adaptive_avg_pool2d_backward", "aten._adaptive_avg_pool3d_backward")
def _adaptive_avg_pool_backward(call: Call, grad_output: Any, self: Any) -> Value:
    kernel = _bins(self.shape, grad_output.shape, _spatial(call))
    grad = value_at(grad_output, grad_output.shape, call.compute)
    grad = op.divide(grad, op.like(math.prod(kernel), grad))
    spread = list(grad_output.shape)
    places = list(range(len(spread)))
    first = len(spread) - len(kernel)
    for at, size in enumerate(kernel):
        spread.insert(first + 2 * at + 1, size)
        places[first + at] = first + 2 * at
    return op.reshape(op.broadcast(grad, spread, places), call.shape)
