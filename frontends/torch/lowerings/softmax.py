"""Softmax and its logarithm, forward and backward."""

from __future__ import annotations

import math
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, axis, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers


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
