"""Losses: negative log-likelihood and mean squared error, forward and backward."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers

_NONE, _MEAN, _SUM = 0, 1, 2


class _Targets(NamedTuple):
    """What a loss takes from each target.

    Attributes:
        shape: of the targets: that of the input without its class dim.
        classes: of the targets, 0 of those that are ignored, [n].
        places: where each target's class lies in the input, [n, rank].
        weights: of each target's class, 0 of those that are ignored, [n].
    """

    shape: tuple[int, ...]
    classes: Value
    places: Value
    weights: Value


def _targets(self: Any, target: Any, weight: Any, ignore_index: int, dtype: str) -> _Targets:
    along = 0 if self.rank == 1 else 1
    shape = tuple(size for at, size in enumerate(self.shape) if at != along)
    count = math.prod(shape)
    index = op.reshape(op.convert(target.value, "int64"), (count,))
    kept = op.compare("NE", index, op.like(ignore_index, index))
    index = op.select(kept, index, op.like(0, index))
    places = [op.reshape(op.iota(shape, at), (count, 1)) for at in range(len(shape))]
    places.insert(along, op.reshape(index, (count, 1)))
    if weight is None:
        each = op.constant(1, (count,), dtype)
    else:
        each = op.take(op.convert(weight.value, dtype), index)
    weights = op.select(kept, each, op.like(0, each))
    return _Targets(shape, index, op.concatenate(places, 1), weights)


@lowers("aten.nll_loss_forward", "aten.nll_loss2d_forward")
def _nll_loss(
    call: Call, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, **_: Any
) -> list[Value]:
    dtype = call.compute
    found = _targets(self, target, weight, ignore_index, dtype)
    picked = op.convert(op.gather_points(self.value, found.places), dtype)
    kept = op.compare("NE", found.weights, op.like(0, found.weights))
    loss = op.negate(op.multiply(picked, found.weights))
    loss = op.select(kept, loss, op.like(0, loss))
    if reduction == _NONE:
        return [op.reshape(loss, found.shape), op.constant(0, (), call.targets[1].dtype)]
    total, amount = op.reduce(loss, [0]), op.reduce(found.weights, [0])
    return [op.divide(total, amount) if reduction == _MEAN else total, amount]


@lowers("aten.nll_loss_backward", "aten.nll_loss2d_backward")
def _nll_loss_backward(
    call: Call, grad_output: Any, self: Any, target: Any, weight: Any, reduction: int,
    ignore_index: int, total_weight: Any, **_: Any,
) -> Value:  # fmt: skip
    dtype = call.compute
    found = _targets(self, target, weight, ignore_index, dtype)
    grad = op.negate(op.convert(grad_output.value, dtype))
    if reduction == _MEAN:
        grad = op.divide(grad, op.convert(total_weight.value, dtype))
    count = op.shape_of(found.weights)
    each = op.reshape(grad, count) if reduction == _NONE else op.broadcast(grad, count)
    # If all targets are ignored, the mean is of nothing, and its gradient still 0.
    nothing = op.like(0, found.weights)
    counts = op.compare("NE", found.weights, nothing)
    updates = op.select(counts, op.multiply(each, found.weights), nothing)
    # One choice per element, as Inductor writes it (``scatter_upon_const_tensor``): what reads the
    # gradient makes it again, where a scatter would fill a tensor of all scores first.
    along = 0 if self.rank == 1 else 1
    dims = [dim for dim in range(self.rank) if dim != along]

    def everywhere(value: Value) -> Value:
        return op.broadcast(op.reshape(value, found.shape), self.shape, dims)

    classes = op.iota(self.shape, along, "int32")
    chosen = op.compare("EQ", classes, everywhere(op.convert(found.classes, "int32")))
    return op.select(chosen, everywhere(updates), op.constant(0, self.shape, dtype))
