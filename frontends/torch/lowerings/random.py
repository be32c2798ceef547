"""Random numbers: the right work and the right types, not torch's numbers.

Bits come from StableHLO's Philox generator with a constant state in every kernel, so that a module
states the work, though not the numbers.  Uniform numbers are the upper bits scaled to [0, 1);
normal ones are computed from two uniform ones (Box and Muller, 1958).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import ir
from flint.stablehlo.read.bindings import stablehlo as hlo

_MANTISSA = 24


def _bits(shape: tuple[int, ...]) -> Value:
    state = op.literal(np.array([0, 0], np.uint64), "uint64")
    kind = ir.Attribute.parse("#stablehlo<rng_algorithm PHILOX>")
    made = hlo.rng_bit_generator(state.type, op.tensor(shape, "uint32"), kind, state)
    return made[1]


def uniform_values(shape: tuple[int, ...], dtype: str = "float32") -> Value:
    """Uniform in [0, 1)."""
    if not math.prod(shape):
        return op.constant(0, shape, dtype)
    bits = _bits(shape)
    upper = hlo.shift_right_logical(bits, op.like(32 - _MANTISSA, bits))
    number = op.convert(upper, dtype)
    return op.multiply(number, op.like(2.0**-_MANTISSA, number))


def kept_values(shape: tuple[int, ...], probability: float) -> Value:
    """The elements that a dropout with this probability keeps; bool."""
    return op.compare("GE", uniform_values(shape), op.constant(probability, shape, "float32"))


def normal_values(shape: tuple[int, ...], dtype: str = "float32") -> Value:
    """Standard normal."""
    both = uniform_values((2, *shape), dtype)
    first, second = (op.reshape(op.slice_dim(both, 0, at, at + 1), shape) for at in (0, 1))
    positive = op.subtract(op.like(1, first), first)
    radius = op.sqrt(op.multiply(op.like(-2.0, first), op.log(positive)))
    return op.multiply(radius, hlo.cosine(op.multiply(op.like(2 * math.pi, second), second)))


def _two_of(given: tuple[Any, ...]) -> tuple[Any, Any]:
    """Two arguments whose defaults are 0 and 1."""
    low = given[0] if given else 0.0
    return low, given[1] if len(given) > 1 else 1.0


def _work_dtype(call: Call) -> str:
    return call.compute if dtypes.is_float(call.dtype) else "float32"


@lowers("aten.rand", "aten.rand_like", "aten.uniform")
def _uniform(call: Call, *args: Any, **_: Any) -> Value:
    """``uniform_(self, from, to)`` too."""
    value = uniform_values(call.shape, _work_dtype(call))
    if call.base != "uniform":
        return value
    low, high = _two_of(args[1:3])
    scaled = op.multiply(value, op.like(high - low, value))
    return op.add(scaled, op.like(low, scaled))


@lowers("aten.randn", "aten.randn_like", "aten.normal")
def _normal(call: Call, *args: Any, **_: Any) -> Value:
    """``normal_(self, mean, std)`` too, and ``normal(mean, std)`` of tensors or numbers."""
    dtype = _work_dtype(call)
    value = normal_values(call.shape, dtype)
    if call.base != "normal":
        return value
    given = args[1:3] if call.overload == "default" else args[:2]
    mean, std = (value_at(item, call.shape, dtype) for item in _two_of(given))
    return op.add(op.multiply(value, std), mean)


@lowers("aten.randint", "aten.randint_like", "aten.random")
def _integers(call: Call, *args: Any, **_: Any) -> Value:
    """Whole numbers below the last integer argument, from the one before it."""
    bounds = [item for item in args if isinstance(item, int) and not isinstance(item, bool)]
    low, high = (0, bounds[-1]) if len(bounds) == 1 else (bounds or [0, 2**31])[-2:]
    value = uniform_values(call.shape, "float64")
    number = hlo.floor(op.multiply(value, op.like(high - low, value)))
    return op.convert(op.add(number, op.like(low, number)), call.dtype)


@lowers("aten.bernoulli")
def _bernoulli(call: Call, self: Any, p: Any = None, **_: Any) -> Value:
    value = uniform_values(call.shape, "float32")
    probability = self if p is None else p
    below = op.compare("LT", value, value_at(probability, call.shape, "float32"))
    return op.convert(below, call.dtype)


@lowers("aten.exponential")
def _exponential(call: Call, self: Any, lambd: float = 1.0, **_: Any) -> Value:
    value = uniform_values(call.shape, _work_dtype(call))
    logarithm = op.log(op.subtract(op.like(1, value), value))
    return op.divide(logarithm, op.like(-lambd, value))


@lowers("aten.native_dropout_backward")
def _dropout_backward(call: Call, grad_output: Any, mask: Any, scale: float) -> Value:
    grad = value_at(grad_output, call.shape, call.compute)
    scaled = op.multiply(grad, op.like(scale, grad))
    return op.select(mask.value, scaled, op.like(0, scaled))


@lowers("aten.randperm")
def _permutation(call: Call, n: int, **_: Any) -> Value:
    """The order of random keys."""
    from flint.frontends.torch.lowerings.sorting import sorted_along

    return sorted_along(uniform_values((n,)), 0, False)[1]


@lowers("aten.multinomial")
def _multinomial(call: Call, self: Any, *_: Any, **__: Any) -> Value:
    """Places drawn by the largest of log-weights plus Gumbel noise (without replacement)."""
    from flint.frontends.torch.lowerings.sorting import sorted_along

    weights = op.log(value_at(self, self.shape, "float32"))
    noise = op.negate(op.log(op.negate(op.log(uniform_values(self.shape)))))
    order = sorted_along(op.add(weights, noise), self.rank - 1, True)[1]
    return op.slice_dim(order, self.rank - 1, 0, call.shape[-1])
