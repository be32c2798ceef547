"""Activations and their derivatives, by the formulas in torch's documentation of each."""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo


def _values(call: Call, *items: Any) -> list[Value]:
    return [value_at(item, call.shape, call.compute) for item in items]


@lowers("aten.softplus")
def _softplus(call: Call, self: Any, beta: Any = 1, threshold: Any = 20, **_: Any) -> Value:
    (x,) = _values(call, self)
    scaled = op.multiply(x, op.like(beta, x))
    soft = op.divide(hlo.log_plus_one(op.exponential(scaled)), op.like(beta, x))
    return op.select(op.compare("GT", scaled, op.like(threshold, x)), x, soft)


@lowers("aten.softplus_backward")
def _softplus_backward(call: Call, grad_output: Any, self: Any, beta: Any, threshold: Any) -> Value:
    grad, x = _values(call, grad_output, self)
    scaled = op.multiply(x, op.like(beta, x))
    soft = op.multiply(grad, op.logistic(scaled))
    return op.select(op.compare("GT", scaled, op.like(threshold, x)), grad, soft)


@lowers("aten.log_sigmoid_forward")
def _log_sigmoid(call: Call, self: Any, **_: Any) -> list[Value]:
    """min(0, x) - log(1 + exp(-|x|)); kernels of CPUs keep the exponential, GPUs' nothing."""
    (x,) = _values(call, self)
    small = op.exponential(op.negate(hlo.abs(x)))
    result = op.subtract(op.minimum(op.like(0, x), x), hlo.log_plus_one(small))
    kept = small if call.targets[1].shape == call.shape else op.constant(0, (0,), call.dtype)
    return [result, kept]


@lowers("aten.log_sigmoid_backward")
def _log_sigmoid_backward(call: Call, grad_output: Any, self: Any, *_: Any, **__: Any) -> Value:
    grad, x = _values(call, grad_output, self)
    return op.multiply(grad, op.logistic(op.negate(x)))


@lowers("aten.mish")
def _mish(call: Call, self: Any, **_: Any) -> Value:
    (x,) = _values(call, self)
    return op.multiply(x, hlo.tanh(hlo.log_plus_one(op.exponential(x))))


@lowers("aten.threshold_backward")
def _threshold_backward(call: Call, grad_output: Any, self: Any, threshold: Any, **_: Any) -> Value:
    grad, x = _values(call, grad_output, self)
    return op.select(op.compare("LE", x, op.like(threshold, x)), op.like(0, grad), grad)
