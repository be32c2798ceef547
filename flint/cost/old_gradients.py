"""FLOPs of convolutions in profiles of PyTorch before 1.10, which have no values of arguments.

The idea: there is one op for each gradient.  That of the input's has the weight among its operands;
that of the weight's has the weight's shape as values only, but the op around both has everything.
The size of a convolution's result follows from its strides, which are values, too; its gradient has
this size.

    whole([((32, 512, 7, 7), "f32"), ((32, 2048, 7, 7), "f32"), ((2048, 512, 1, 1), "f32")])
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from flint.cost.recorded_op import Arguments, Formula, Items, Tensor, product

#: The op around both, without its library and with its suffix for each operand.
AROUND: Final = "_convolution_backward"
OF_WEIGHT: Final = (f"{AROUND}_weight", f"{AROUND}_weights")
FORWARD: Final = tuple(f"{library}_convolution" for library in ("cudnn", "miopen", "mkldnn"))


def _of_input(arguments: Arguments, values: Sequence[Any]) -> Items | None:
    """``input_size, grad_output, weight``: each element of the gradient meets its weights."""
    (grad, dtype), (kernel, _) = arguments[1][0], arguments[2][0]
    dims = (1, grad[0] * prod(grad[2:]), prod(kernel[1:]), kernel[0])
    return (product(dims, dtype or "f32"),)


def whole(operands: Sequence[Tensor]) -> Items | None:
    """A convolution, or its weight's gradient, from input, gradient of the result, and weight.

    None if they do not fit together.
    """
    if len(operands) < 3:
        return None
    (data, dtype), (grad, _), (kernel, _) = operands[:3]
    if min(len(data), len(grad), len(kernel)) < 3 or not kernel[1] or data[1] % kernel[1]:
        return None
    groups = data[1] // kernel[1]
    dims = (groups, kernel[0] // groups, prod(kernel[1:]), grad[0] * prod(grad[2:]))
    return (product(dims, dtype or "f32"),)


FORMULAS: Final[dict[str, Formula]] = {
    f"{library}{AROUND}_input": _of_input for library in ("cudnn", "miopen", "mkldnn")
}
