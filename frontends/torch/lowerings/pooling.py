"""Pooling over windows of the last dims, forward and backward."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.reduction import window
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.bindings import stablehlo as hlo


def _both(values: Any, default: Any = None) -> list[int]:
    if isinstance(values, int):
        return [values, values]
    if not values:
        return list(default)
    return list(values) * (2 if len(values) == 1 else 1)


def _high(size: int, out: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """Padding behind that a result of a given size needs; more than ``pad`` in ceil mode."""
    return (out - 1) * stride + dilation * (kernel - 1) + 1 - size - pad


def _windows(
    shape: tuple[int, ...], out: tuple[int, ...], kernel: list[int], stride: list[int],
    pad: list[int], dilation: list[int],
) -> tuple[list[int], list[int], list[tuple[int, int]], list[int]]:  # fmt: skip
    lead = len(shape) - 2
    high = [
        _high(shape[lead + at], out[lead + at], kernel[at], stride[at], pad[at], dilation[at])
        for at in (0, 1)
    ]
    ones, none = [1] * lead, [(0, 0)] * lead
    pads = [*none, *((pad[at], high[at]) for at in (0, 1))]
    return ones + kernel, ones + stride, pads, ones + dilation


@lowers("aten.max_pool2d_with_indices")
def _max_pool(
    call: Call, self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0,
    dilation: Any = 1, ceil_mode: bool = False,
) -> list[Value]:  # fmt: skip
    """The maxima, and where they are in the plane: the first place of the window that has it."""
    kernel = _both(kernel_size)
    step, pad, dilation = _both(stride, kernel), _both(padding), _both(dilation)
    size, pitch, pads, reach = _windows(self.shape, call.shape, kernel, step, pad, dilation)
    value = self.value
    lead = self.rank - 2
    place = op.add(
        op.multiply(op.iota(self.shape, lead), op.constant(self.shape[-1], self.shape, "int64")),
        op.iota(self.shape, lead + 1),
    )
    kinds = [op.tensor(call.shape, self.dtype), op.tensor(call.shape, "int64")]
    starts = [op.initial("maximum", self.dtype), op.constant(math.prod(self.shape), (), "int64")]
    made = hlo.ReduceWindowOp(
        kinds, [value, place], starts, op.integers(size),
        window_strides=op.integers(pitch), window_dilations=op.integers(reach),
        padding=np.array(pads, np.int64),
    )  # fmt: skip
    _fill_best(made.regions[0], self.dtype)
    return list(made.results)


def _fill_best(region: Any, dtype: str) -> None:
    """The greater of two values with its place; of equal ones, the first."""
    from flint.stablehlo.bindings import ir

    kinds = [op.tensor((), dtype), op.tensor((), "int64")]
    block = region.blocks.append(*kinds, *kinds)
    a, at_a, b, at_b = block.arguments
    with ir.InsertionPoint(block):
        greater = op.compare("GT", a, b)
        first = op.and_(op.compare("EQ", a, b), op.compare("LT", at_a, at_b))
        chosen = op.or_(greater, first)
        hlo.return_([op.select(chosen, a, b), op.select(chosen, at_a, at_b)])


@lowers("aten.max_pool2d_with_indices_backward")
def _max_pool_backward(call: Call, grad_output: Any, self: Any, *args: Any) -> Value:
    """Gradients added up where the maxima were."""
    indices = args[-1]
    lead = self.shape[:-2]
    planes, plane = math.prod(lead), self.shape[-2] * self.shape[-1]
    count = math.prod(grad_output.shape[-2:])
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
    """What each window is divided by, over its plane [h, w]."""
    if divisor is not None:
        return op.constant(divisor, out[-2:], dtype)
    counts = []
    for at in (0, 1):
        size = shape[at - 2]
        first = np.arange(out[at - 2]) * stride[at] - pad[at]
        last = np.minimum(first + kernel[at], size + pad[at])
        if not include:
            first, last = np.maximum(first, 0), np.minimum(last, size)
        counts.append(last - first)
    table = np.multiply.outer(*counts).astype(np.float64)
    if (table == table.flat[0]).all():
        return op.constant(float(table.flat[0]), out[-2:], dtype)
    return op.convert(op.literal(table, "float64"), dtype)


@lowers("aten.avg_pool2d")
def _avg_pool(
    call: Call, self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: Any = None,
) -> Value:  # fmt: skip
    kernel = _both(kernel_size)
    step, pad = _both(stride, kernel), _both(padding)
    size, pitch, pads, reach = _windows(self.shape, call.shape, kernel, step, pad, [1, 1])
    value = value_at(self, self.shape, call.compute)
    sums = window(value, size, pitch, pads, "add", reach)
    share = _shares(
        self.shape, call.shape, kernel, step, pad, count_include_pad, divisor_override,
        call.compute,
    )  # fmt: skip
    return op.divide(sums, op.broadcast(share, call.shape))


@lowers("aten.avg_pool2d_backward")
def _avg_pool_backward(
    call: Call, grad_output: Any, self: Any, kernel_size: Any, stride: Any, padding: Any,
    ceil_mode: bool, count_include_pad: bool, divisor_override: Any,
) -> Value:  # fmt: skip
    kernel = _both(kernel_size)
    step, pad = _both(stride, kernel), _both(padding)
    dtype = call.compute
    out = grad_output.shape
    share = _shares(self.shape, out, kernel, step, pad, count_include_pad, divisor_override, dtype)
    grad = op.divide(value_at(grad_output, out, dtype), op.broadcast(share, out))
    lead = self.rank - 2
    low, high, inside = [0] * self.rank, [0] * self.rank, [0] * self.rank
    for at in (0, 1):
        spread = (out[lead + at] - 1) * step[at] + 1
        low[lead + at] = kernel[at] - 1 - pad[at]
        high[lead + at] = self.shape[lead + at] + kernel[at] - 1 - spread - low[lead + at]
        inside[lead + at] = step[at] - 1
    spread_out = op.pad(grad, low, high, 0, inside)
    size = [1] * lead + kernel
    return window(spread_out, size, [1] * self.rank, [(0, 0)] * self.rank, "add")


def _bins(shape: tuple[int, ...], out: tuple[int, ...]) -> list[int]:
    sizes = []
    for at in (-2, -1):
        if shape[at] % out[at]:
            raise Unsupported(f"adaptive pooling of {shape[at]} to {out[at]}")
        sizes.append(shape[at] // out[at])
    return sizes


@lowers("aten._adaptive_avg_pool2d")
def _adaptive_avg_pool(call: Call, self: Any, output_size: Any) -> Value:
    kernel = _bins(self.shape, call.shape)
    value = value_at(self, self.shape, call.compute)
    lead = self.rank - 2
    size = [1] * lead + kernel
    sums = window(value, size, size, [(0, 0)] * self.rank, "add")
    return op.divide(sums, op.like(kernel[0] * kernel[1], sums))


@lowers("aten._adaptive_avg_pool2d_backward")
def _adaptive_avg_pool_backward(call: Call, grad_output: Any, self: Any) -> Value:
    kernel = _bins(self.shape, grad_output.shape)
    grad = value_at(grad_output, grad_output.shape, call.compute)
    grad = op.divide(grad, op.like(kernel[0] * kernel[1], grad))
    *lead, rows, columns = grad_output.shape
    rank = len(lead)
    spread = (*lead, rows, kernel[0], columns, kernel[1])
    return op.reshape(op.broadcast(grad, spread, [*range(rank), rank, rank + 2]), call.shape)
