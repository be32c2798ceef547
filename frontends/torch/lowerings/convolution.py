"""Convolutions of any number of spatial dims, with their gradients as convolutions too.

The gradient of the input convolves the output's gradient, dilated by the stride, with the mirrored
kernel; the gradient of the kernel convolves input and output gradient with batch and features
swapped (Dumoulin and Visin, "A guide to convolution arithmetic", arXiv:1603.07285).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo

Pairs = list[tuple[int, int]]


def _convolve(
    left: Value, right: Value, shape: tuple[int, ...], stride: list[int], padding: Pairs,
    dilate_left: list[int], dilate_right: list[int], *, groups: int = 1, batch_groups: int = 1,
    left_dims: tuple[int, int] = (0, 1), right_dims: tuple[int, int] = (0, 1),
    out_dims: tuple[int, int] = (0, 1),
) -> Value:  # fmt: skip
    """A convolution.

    Args:
        shape: of the result.
        left_dims: (batch, feature) of the left.
        right_dims: (output feature, input feature) of the right.
        out_dims: (batch, feature) of the result.
    """
    space = list(range(2, len(shape)))
    numbers = hlo.ConvDimensionNumbers.get(
        *left_dims, space, right_dims[1], right_dims[0], space, *out_dims, space
    )
    dtype = dtypes.compute_dtype(op.dtype_of(left))
    return hlo.convolution(
        op.tensor(shape, dtype),
        left,
        right,
        numbers,
        groups,
        batch_groups,
        window_strides=op.integers(stride),
        padding=np.array(padding, np.int64),
        lhs_dilation=op.integers(dilate_left),
        rhs_dilation=op.integers(dilate_right),
    )


class _Window(NamedTuple):
    """The placement of a kernel: stride, padding and dilation per spatial dim, and groups."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int


def _window(input: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> _Window:
    """Options per dim, of which PyTorch takes one for all, too."""
    count = input.rank - 2
    stride, padding, dilation = (
        list(item) * (count if len(item) == 1 else 1) for item in (stride, padding, dilation)
    )
    return _Window(stride, padding, dilation, groups)


def _output(input: Value, weight: Value, shape: tuple[int, ...], window: _Window) -> Value:
    """Of a convolution; also a transposed convolution's input gradient."""
    stride, padding, dilation, groups = window
    pads = [(size, size) for size in padding]
    return _convolve(input, weight, shape, stride, pads, [1] * len(stride), dilation, groups=groups)


def _grouped_kernel(weight: Value, groups: int) -> Value:
    """[in, out / groups, ...] of a transposed convolution -> [out, in / groups, ...]."""
    shape = op.shape_of(weight)
    split = op.reshape(weight, (groups, shape[0] // groups, *shape[1:]))
    order = [0, 2, 1, *range(3, len(shape) + 1)]
    swapped = op.transpose(split, order)
    return op.reshape(swapped, (groups * shape[1], shape[0] // groups, *shape[2:]))


def _input_gradient(grad: Value, weight: Value, shape: tuple[int, ...], window: _Window) -> Value:
    """Of a convolution's input of a given shape; also a transposed convolution's output."""
    stride, padding, dilation, groups = window
    space = range(len(stride))
    kernel, sizes = op.shape_of(weight)[2:], op.shape_of(grad)[2:]
    mirrored = op.reverse(_grouped_kernel(weight, groups), [2 + at for at in space])
    pads: Pairs = []
    for at in space:
        reach = dilation[at] * (kernel[at] - 1)
        low = reach - padding[at]
        spread = (sizes[at] - 1) * stride[at] + 1
        pads.append((low, shape[2 + at] - spread - low + reach))
    ones = [1] * len(stride)
    return _convolve(grad, mirrored, shape, ones, pads, stride, dilation, groups=groups)


def _kernel_gradient(input: Value, grad: Value, shape: tuple[int, ...], window: _Window) -> Value:
    stride, padding, dilation, groups = window
    space = range(len(stride))
    kernel, sizes = shape[2:], op.shape_of(grad)[2:]
    own = op.shape_of(input)[2:]
    pads: Pairs = []
    for at in space:
        reach = (sizes[at] - 1) * stride[at] + 1
        needed = (kernel[at] - 1) * dilation[at] + reach
        pads.append((padding[at], needed - own[at] - padding[at]))
    ones = [1] * len(stride)
    return _convolve(
        input, grad, shape, dilation, pads, ones, stride, batch_groups=groups,
        left_dims=(1, 0), right_dims=(1, 0), out_dims=(1, 0),
    )  # fmt: skip


@lowers("aten.convolution")
def _convolution(
    call: Call, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, *_: Any,
) -> Value:  # fmt: skip
    made = _input_gradient if transposed else _output
    window = _window(input, stride, padding, dilation, groups)
    y = made(input.value, weight.value, call.shape, window)
    if bias is not None:
        y = op.add(y, op.broadcast(op.convert(bias.value, op.dtype_of(y)), call.shape, [1]))
    return y


@lowers("aten.convolution_backward")
def _convolution_backward(
    call: Call, grad_output: Any, input: Any, weight: Any, bias_sizes: Any, stride: Any,
    padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int,
    output_mask: Any,
) -> list[Value]:  # fmt: skip
    window = _window(input, stride, padding, dilation, groups)
    results = []
    if output_mask[0]:
        made = _output if transposed else _input_gradient
        results.append(made(grad_output.value, weight.value, input.shape, window))
    if output_mask[1]:
        # In a transposed convolution input and output are swapped.
        ends = (grad_output, input) if transposed else (input, grad_output)
        results.append(_kernel_gradient(ends[0].value, ends[1].value, weight.shape, window))
    if output_mask[2]:
        dims = [0, *range(2, input.rank)]
        whole = op.convert(grad_output.value, dtypes.compute_dtype(grad_output.dtype))
        results.append(op.reduce(whole, dims))
    return results
