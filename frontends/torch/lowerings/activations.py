"""Activations and their derivatives, by the formulas in torch's documentation of each."""

from __future__ import annotations

import math
from typing import Any

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


def _values(call: Call, *items: Any) -> list[Value]:
    return [value_at(item, call.shape, call.compute) for item in items]


@lowers("aten.silu_backward")
def _silu_backward(call: Call, grad_output: Any, self: Any, **_: Any) -> Value:
    grad, x = _values(call, grad_output, self)
    s = op.logistic(x)
    one = op.like(1, x)
    return op.multiply(op.multiply(grad, s), op.add(one, op.multiply(x, op.subtract(one, s))))


@lowers("aten.sigmoid_backward")
def _sigmoid_backward(call: Call, grad_output: Any, output: Any, **_: Any) -> Value:
    grad, y = _values(call, grad_output, output)
    return op.multiply(grad, op.multiply(op.subtract(op.like(1, y), y), y))


@lowers("aten.tanh_backward")
def _tanh_backward(call: Call, grad_output: Any, output: Any, **_: Any) -> Value:
    grad, y = _values(call, grad_output, output)
    return op.multiply(grad, op.subtract(op.like(1, y), op.multiply(y, y)))


@lowers("aten.threshold_backward")
def _threshold_backward(call: Call, grad_output: Any, self: Any, threshold: Any, **_: Any) -> Value:
    grad, x = _values(call, grad_output, self)
    return op.select(op.compare("LE", x, op.like(threshold, x)), op.like(0, grad), grad)


@lowers("aten.softplus")
def _softplus(call: Call, self: Any, beta: Any = 1, threshold: Any = 20, **_: Any) -> Value:
    (x,) = _values(call, self)
    scaled = op.multiply(x, op.like(beta, x))
    soft = op.divide(hlo.log_plus_one(op.exponential(scaled)), op.like(beta, x))
    return op.select(op.compare("GT", scaled, op.like(threshold, x)), x, soft)


def _tanh_of_gelu(x: Value) -> Value:
    cube = op.multiply(op.multiply(x, x), x)
    inner = op.add(x, op.multiply(op.like(_TANH_CUBIC, x), cube))
    return hlo.tanh(op.multiply(op.like(_TANH_SCALE, x), inner))


@lowers("aten.gelu")
def _gelu(call: Call, self: Any, *, approximate: str = "none", **_: Any) -> Value:
    (x,) = _values(call, self)
    if approximate == "tanh":
        share = _tanh_of_gelu(x)
    else:
        share = op.erf(op.multiply(x, op.like(math.sqrt(0.5), x)))
    half = op.multiply(x, op.like(0.5, x))
    return op.multiply(half, op.add(op.like(1, x), share))


@lowers("aten.gelu_backward")
def _gelu_backward(
    call: Call, grad_output: Any, self: Any, *, approximate: str = "none", **_: Any
) -> Value:
    grad, x = _values(call, grad_output, self)
    one, half = op.like(1, x), op.like(0.5, x)
    square = op.multiply(x, x)
    if approximate == "tanh":
        t = _tanh_of_gelu(x)
        left = op.multiply(half, op.add(one, t))
        slope = op.add(one, op.multiply(op.like(3 * _TANH_CUBIC, x), square))
        inner = op.multiply(op.like(_TANH_SCALE, x), slope)
        bend = op.multiply(op.subtract(one, op.multiply(t, t)), inner)
        return op.multiply(grad, op.add(left, op.multiply(op.multiply(half, x), bend)))
    cdf = op.multiply(half, op.add(one, op.erf(op.multiply(x, op.like(math.sqrt(0.5), x)))))
    density = op.multiply(
        op.exponential(op.multiply(square, op.like(-0.5, x))),
        op.like(1 / math.sqrt(2 * math.pi), x),
    )
    return op.multiply(grad, op.add(cdf, op.multiply(x, density)))


@lowers("aten.leaky_relu_backward")
def _leaky_relu_backward(
    call: Call, grad_output: Any, self: Any, negative_slope: Any, *_: Any
) -> Value:
    grad, x = _values(call, grad_output, self)
    positive = op.compare("GT", x, op.like(0, x))
    return op.select(positive, grad, op.multiply(grad, op.like(negative_slope, x)))


@lowers("aten.hardtanh_backward")
def _hardtanh_backward(
    call: Call, grad_output: Any, self: Any, min_val: Any, max_val: Any
) -> Value:
    grad, x = _values(call, grad_output, self)
    outside = op.or_(
        op.compare("LE", x, op.like(min_val, x)), op.compare("GE", x, op.like(max_val, x))
    )
    return op.select(outside, op.like(0, grad), grad)


@lowers("aten.elu")
def _elu(
    call: Call, self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1, **_: Any
) -> Value:
    (x,) = _values(call, self)
    low = op.multiply(
        op.like(alpha, x), hlo.exponential_minus_one(op.multiply(x, op.like(input_scale, x)))
    )
    positive = op.compare("GT", x, op.like(0, x))
    return op.multiply(op.like(scale, x), op.select(positive, x, low))


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


@lowers("aten.hardsigmoid", "aten.hardswish")
def _hard(call: Call, self: Any, **_: Any) -> Value:
    (x,) = _values(call, self)
    gate = op.minimum(op.maximum(op.add(x, op.like(3, x)), op.like(0, x)), op.like(6, x))
    gate = op.divide(gate, op.like(6, x))
    return op.multiply(x, gate) if call.base == "hardswish" else gate


@lowers("aten.mish")
def _mish(call: Call, self: Any, **_: Any) -> Value:
    (x,) = _values(call, self)
    return op.multiply(x, hlo.tanh(hlo.log_plus_one(op.exponential(x))))
