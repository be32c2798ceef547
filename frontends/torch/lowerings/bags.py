"""Sums of rows of a table, bag by bag: recommenders' embeddings.

Only the rows named by the indices are read from the table.  ``offsets`` gives the index at which
each bag begins.
"""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.reduction import scanned
from flint.frontends.torch.lowerings.table import lowers

_SUM, _MEAN = 0, 1


def bags_of(offsets: Any, count: int) -> Value:
    """The bag of each index, [count]."""
    begins = op.reshape(op.convert(offsets.value, "int64"), (offsets.spec.elements, 1))
    ones = op.constant(1, (offsets.spec.elements,), "int64")
    marks = op.scatter(op.constant(0, (count,), "int64"), begins, ones, "add")
    bags = scanned(marks, 0)
    return op.subtract(bags, op.like(1, bags))


def _counted(indices: Any, padding_idx: int, dtype: str) -> Value:
    """1 for indices that count, 0 for padding."""
    index = op.convert(indices.value, "int64")
    return op.convert(op.compare("NE", index, op.like(padding_idx, index)), dtype)


def _weights(indices: Any, own: Any, padding_idx: int, dtype: str) -> Value | None:
    """The factor of each row; None if it is 1."""
    parts = []
    if own is not None:
        parts.append(op.convert(own.value, dtype))
    if padding_idx >= 0:
        parts.append(_counted(indices, padding_idx, dtype))
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else op.multiply(*parts)


def _sizes(indices: Any, place: Value, bags: int, padding_idx: int) -> Value:
    """How many indices of each bag count, int64 [bags]."""
    ones = _counted(indices, padding_idx, "int64")
    return op.scatter(op.constant(0, (bags,), "int64"), place, ones, "add")


def _divided(value: Value, sizes: Value, dtype: str) -> Value:
    one = op.like(1, sizes)
    share = op.convert(op.maximum(sizes, one), dtype)
    return op.divide(value, op.broadcast(share, op.shape_of(value), [0]))


@lowers("aten._embedding_bag", "aten._embedding_bag_forward_only")
def _embedding_bag(
    call: Call, weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False,
    mode: int = 0, sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> list[Value]:  # fmt: skip
    if mode not in (_SUM, _MEAN) or include_last_offset:
        raise Unsupported(f"{call.name} of maxima, or with the last offset")
    count, (bags, width), dtype = indices.spec.elements, call.shape, call.compute
    index = op.reshape(op.convert(indices.value, "int64"), (count,))
    rows = op.convert(op.take(weight.value, index), dtype)
    factor = _weights(indices, per_sample_weights, padding_idx, dtype)
    if factor is not None:
        rows = op.multiply(rows, op.broadcast(factor, (count, width), [0]))
    bag = bags_of(offsets, count)
    place = op.reshape(bag, (count, 1))
    total = op.scatter(op.constant(0, (bags, width), dtype), place, rows, "add")
    sizes = _sizes(indices, place, bags, padding_idx)
    if mode == _MEAN:
        total = _divided(total, sizes, dtype)
    values = [total]
    # Which of the other results exist, and their length, differs among devices.
    for spec, value in zip(call.targets[1:], (bag, sizes, None), strict=True):
        fits = value is not None and op.shape_of(value) == spec.shape
        values.append(value if fits else op.constant(0, spec.shape, spec.dtype))
    return values


@lowers("aten._embedding_bag_backward")
def _embedding_bag_backward(
    call: Call, grad: Any, indices: Any, offsets: Any, offset2bag: Any, bag_size: Any,
    maximum_indices: Any, num_weights: int, scale_grad_by_freq: bool, mode: int, sparse: bool,
    per_sample_weights: Any, padding_idx: int = -1,
) -> Value:  # fmt: skip
    """The gradient of the whole table."""
    if mode not in (_SUM, _MEAN) or scale_grad_by_freq or sparse:
        raise Unsupported(f"{call.name} of maxima, by frequency or sparse")
    count, (bags, width) = indices.spec.elements, grad.shape
    dtype = dtypes.compute_dtype(call.dtype)
    bag = bags_of(offsets, count) if offset2bag.shape != (count,) else offset2bag.value
    bag = op.convert(bag, "int64")
    value = op.convert(grad.value, dtype)
    if mode == _MEAN:
        sizes = _sizes(indices, op.reshape(bag, (count, 1)), bags, padding_idx)
        value = _divided(value, sizes, dtype)
    rows = op.take(value, bag)
    factor = _weights(indices, per_sample_weights, padding_idx, dtype)
    if factor is not None:
        rows = op.multiply(rows, op.broadcast(factor, (count, width), [0]))
    index = op.reshape(op.convert(indices.value, "int64"), (count, 1))
    empty = op.constant(0, (num_weights, width), dtype)
    return op.scatter(empty, index, rows, "add")
