"""FLOPs of recorded convolutions and their gradients, by shapes, strides and paddings.

The idea: a convolution is a product of its windows and its filters, in groups.  It counts every
window position, also in the padding, because libraries compute them all; a capture counts only
positions inside the input, as XLA does.

    FORMULAS["conv2d"]([[((1, 3, 8, 8), "f32")], [((16, 3, 3, 3), "f32")], ...], values)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, NamedTuple

from flint.cost.recorded_op import Arguments, Formula, Items, product


class _Window(NamedTuple):
    """Positions of a convolution's arguments; -1 for none."""

    input: int
    weight: int
    stride: int
    padding: int
    dilation: int
    groups: int
    transposed: int = -1


#: ``input, weight, stride, padding, dilation, groups, transposed``.
_CONVOLUTIONS: Final = {
    "convolution": _Window(0, 1, 3, 4, 5, 8, 6),
    "_convolution": _Window(0, 1, 3, 4, 5, 8, 6),
    "conv1d": _Window(0, 1, 3, 4, 5, 6),
    "conv2d": _Window(0, 1, 3, 4, 5, 6),
    "conv3d": _Window(0, 1, 3, 4, 5, 6),
    "cudnn_convolution": _Window(0, 1, 3, 2, 4, 5),
    "cudnn_convolution_relu": _Window(0, 1, 3, 4, 5, 6),
    "miopen_convolution": _Window(0, 1, 4, 3, 5, 6),
    "mkldnn_convolution": _Window(0, 1, 4, 3, 5, 6),
    "_slow_conv2d_forward": _Window(0, 1, 4, 5, -1, -1),
    "slow_conv3d_forward": _Window(0, 1, 4, 5, -1, -1),
    "_conv_depthwise2d": _Window(0, 1, 4, 5, 6, -1),
}
#: Ops of gradients: positions of ``output_mask`` and of ``transposed``, -1 for none.
_BACKWARDS: Final = {
    "convolution_backward": (10, 7),
    "convolution_backward_overrideable": (10, 7),
    "_slow_conv2d_backward": (6, -1),
}


def _each(values: Sequence[Any], place: int, rank: int, usual: int) -> list[int]:
    value = values[place] if 0 <= place < len(values) else None
    if value is None:
        return [usual] * rank
    numbers = [int(item) for item in value] if isinstance(value, list) else [int(value)]
    return numbers * rank if len(numbers) == 1 else numbers


def _convolution(window: _Window) -> Formula:
    def formula(arguments: Arguments, values: Sequence[Any]) -> Items | None:
        (data, dtype), (kernel, _) = arguments[window.input][0], arguments[window.weight][0]
        rank = len(kernel) - 2
        if len(data) == rank + 1:
            data = (1, *data)
        if rank < 1 or len(data) != rank + 2 or window.stride >= len(values):
            return None
        if values[window.stride] is None:
            return None
        if window.transposed >= 0 and values[window.transposed] is True:
            pixels = prod(data[2:])  # each element makes a window of the result
            groups = data[1] // kernel[0] if kernel[0] else 1
            dims = (groups, data[0] * pixels, kernel[1] * prod(kernel[2:]), kernel[0])
            return (product(dims, dtype or "f32"),)
        strides = _each(values, window.stride, rank, 1)
        paddings = _each(values, window.padding, rank, 0)
        dilations = _each(values, window.dilation, rank, 1)
        out = [
            (size + 2 * pad - spread * (extent - 1) - 1) // step + 1
            for size, extent, step, pad, spread in zip(
                data[2:], kernel[2:], strides, paddings, dilations, strict=True
            )
        ]
        groups = data[1] // kernel[1]
        dims = (groups, data[0] * prod(out), kernel[0] // groups, prod(kernel[1:]))
        return (product(dims, dtype or "f32"),)

    return formula


def _convolution_backward(mask: int, transposed: int) -> Formula:
    """From the gradient's shape, the first argument; the mask says which gradients are needed."""

    def formula(arguments: Arguments, values: Sequence[Any]) -> Items | None:
        (grad, dtype), (data, _), (kernel, _) = (arguments[place][0] for place in range(3))
        stated = values[mask] if len(values) > mask else None
        needs = stated if isinstance(stated, list) else [True, True]
        turned = 0 <= transposed < len(values) and values[transposed] is True
        pixels = (data if turned else grad)[0] * prod((data if turned else grad)[2:])
        groups = (data[1] // kernel[0]) if turned else (data[1] // kernel[1])
        wide, narrow = prod(kernel[1:]), kernel[0] // (1 if turned else groups)
        of_input, of_weight = (groups, pixels, wide, narrow), (groups, narrow, wide, pixels)
        wanted = zip((of_input, of_weight), needs, strict=False)
        return tuple(product(dims, dtype or "f32") for dims, needed in wanted if needed)

    return formula


FORMULAS: Final[dict[str, Formula]] = {
    **{name: _convolution(window) for name, window in _CONVOLUTIONS.items()},
    **{name: _convolution_backward(*places) for name, places in _BACKWARDS.items()},
}
