"""Losses: negative log-likelihood and mean squared error, forward and backward."""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers

_NONE, _MEAN, _SUM = 0, 1, 2


def _planes(shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """The class dim, and the shape of targets."""
    along = 0 if len(shape) == 1 else 1
    return along, tuple(size for at, size in enumerate(shape) if at != along)


def _chosen(
    self: Any, target: Any, weight: Any, ignore_index: int, dtype: str
) -> tuple[Value, Value, Value]:
    """One-hot mask [as self], weights by target, and the weight of each class spread like self."""
    shape = self.shape
    along, rest = _planes(shape)
    index = target.value
    dims = [at for at in range(len(shape)) if at != along]
    hot = op.compare("EQ", op.broadcast(index, shape, dims), op.iota(shape, along, target.dtype))
    kept = op.compare("NE", index, op.like(ignore_index, index))
    mask = op.and_(hot, op.broadcast(kept, shape, dims))
    if weight is None:
        each = op.constant(1, shape, dtype)
    else:
        each = op.broadcast(op.convert(weight.value, dtype), shape, [along])
    per_target = op.reduce(op.select(mask, each, op.like(0, each)), [along])
    return mask, op.reshape(per_target, rest), each


@lowers("aten.nll_loss_forward", "aten.nll_loss2d_forward")
def _nll_loss(
    call: Call, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, **_: Any
) -> list[Value]:
    dtype = call.compute
    along, rest = _planes(self.shape)
    mask, weights, each = _chosen(self, target, weight, ignore_index, dtype)
    value = op.multiply(value_at(self, self.shape, dtype), each)
    picked = op.reduce(op.select(mask, value, op.like(0, value)), [along])
    loss = op.negate(op.reshape(picked, rest))
    if reduction == _NONE:
        return [loss, op.constant(0, (), call.targets[1].dtype)]
    everywhere = list(range(len(rest)))
    total, amount = op.reduce(loss, everywhere), op.reduce(weights, everywhere)
    return [op.divide(total, amount) if reduction == _MEAN else total, amount]


@lowers("aten.nll_loss_backward", "aten.nll_loss2d_backward")
def _nll_loss_backward(
    call: Call, grad_output: Any, self: Any, target: Any, weight: Any, reduction: int,
    ignore_index: int, total_weight: Any, **_: Any,
) -> Value:  # fmt: skip
    dtype = call.compute
    shape = self.shape
    along, _rest = _planes(shape)
    mask, _weights, each = _chosen(self, target, weight, ignore_index, dtype)
    grad = op.negate(op.convert(grad_output.value, dtype))
    if reduction == _MEAN:
        grad = op.divide(grad, op.convert(total_weight.value, dtype))
    dims = [at for at in range(len(shape)) if at != along] if reduction == _NONE else []
    spread = op.multiply(op.broadcast(grad, shape, dims), each)
    return op.select(mask, spread, op.like(0, spread))


@lowers("aten.mse_loss")
def _mse_loss(call: Call, self: Any, target: Any, reduction: int = _MEAN, **_: Any) -> Value:
    dtype = call.compute
    difference = op.subtract(*(value_at(item, self.shape, dtype) for item in (self, target)))
    square = op.multiply(difference, difference)
    if reduction == _NONE:
        return square
    total = op.reduce(square, list(range(self.rank)))
    return op.divide(total, op.like(self.spec.elements, total)) if reduction == _MEAN else total


@lowers("aten.mse_loss_backward")
def _mse_loss_backward(
    call: Call, grad_output: Any, self: Any, target: Any, reduction: int, **_: Any
) -> Value:
    dtype = call.compute
    difference = op.subtract(*(value_at(item, self.shape, dtype) for item in (self, target)))
    factor = 2 / self.spec.elements if reduction == _MEAN else 2
    scaled = op.multiply(difference, op.like(factor, difference))
    return op.multiply(scaled, value_at(grad_output, self.shape, dtype))


@lowers("aten.binary_cross_entropy_with_logits")
def _bce_with_logits(
    call: Call, self: Any, target: Any, weight: Any = None, pos_weight: Any = None,
    reduction: int = _MEAN,
) -> Value:  # fmt: skip
    if weight is not None or pos_weight is not None:
        raise Unsupported(f"{call.name} with weights")
    dtype = call.compute
    x, y = (value_at(item, self.shape, dtype) for item in (self, target))
    one = op.like(1, x)
    loss = op.subtract(op.multiply(op.subtract(one, y), x), op.log(op.logistic(x)))
    if reduction == _NONE:
        return loss
    total = op.reduce(loss, list(range(self.rank)))
    return op.divide(total, op.like(self.spec.elements, total)) if reduction == _MEAN else total
