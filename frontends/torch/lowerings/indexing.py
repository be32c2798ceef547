"""Reading and writing at computed places: embeddings, gather and scatter, index, index_put.

Negative indices count from the end, as torch's do, where torch allows them.
"""

from __future__ import annotations

import math
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, axis, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers

_REDUCE = {
    "add": "add", "sum": "add", "multiply": "multiply", "prod": "multiply", "amax": "maximum",
    "amin": "minimum",
}  # fmt: skip


@lowers("aten.embedding")
def _embedding(call: Call, weight: Any, indices: Any, *_: Any, **__: Any) -> Value:
    index = op.reshape(indices.value, (indices.spec.elements,))
    return op.reshape(op.take(weight.value, index), call.shape)


@lowers("aten.embedding_dense_backward")
def _embedding_backward(
    call: Call, grad_output: Any, indices: Any, num_weights: int, padding_idx: int,
    scale_grad_by_freq: bool,
) -> Value:  # fmt: skip
    if scale_grad_by_freq:
        raise Unsupported(f"{call.name} scaled by frequency")
    count, width = indices.spec.elements, grad_output.shape[-1]
    dtype = call.compute
    rows = op.reshape(value_at(grad_output, grad_output.shape, dtype), (count, width))
    index = op.reshape(indices.value, (count,))
    if padding_idx >= 0:
        padded = op.compare("EQ", index, op.like(padding_idx, index))
        rows = op.select(op.broadcast(padded, (count, width), [0]), op.like(0, rows), rows)
    empty = op.constant(0, call.shape, dtype)
    return op.scatter(empty, op.reshape(index, (count, 1)), rows, "add")


@lowers("aten.index_select")
def _index_select(call: Call, self: Any, dim: int, index: Any, **_: Any) -> Value:
    along = axis(dim, self.rank)
    vector = op.reshape(index.value, (index.spec.elements,))
    return op.reshape(op.take(self.value, vector, along), call.shape)


@lowers("aten.index_add", "aten.index_copy")
def _index_add(
    call: Call, self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1, **_: Any
) -> Value:
    kind = "add" if call.base == "index_add" else "second"
    rows = value_at(source, source.shape, call.dtype)
    if alpha != 1:
        rows = op.multiply(rows, op.like(alpha, rows))
    return _at_rows(self.value, axis(dim, self.rank), index, rows, kind)


def _at_rows(value: Value, along: int, index: Any, rows: Value, kind: str) -> Value:
    """``value`` with rows along a dim combined at the places of a vector."""
    rank = len(op.shape_of(value))
    order = [along, *(at for at in range(rank) if at != along)]
    back = [order.index(at) for at in range(rank)]
    place = op.reshape(index.value, (index.spec.elements, 1))
    made = op.scatter(op.transpose(value, order), place, op.transpose(rows, order), kind)
    return op.transpose(made, back)


def _points(index: Value, shape: tuple[int, ...], along: int) -> Value:
    """Places [n, rank] of a gather or scatter along a dim: each element's own, but ``index``."""
    own = op.shape_of(index)
    count = math.prod(own)
    columns = [
        op.reshape(op.convert(index, "int64") if at == along else op.iota(own, at), (count, 1))
        for at in range(len(own))
    ]
    return op.concatenate(columns, 1)


@lowers("aten.gather")
def _gather(call: Call, self: Any, dim: int, index: Any, **_: Any) -> Value:
    if not self.shape:
        return op.reshape(self.value, call.shape)
    points = _points(index.value, self.shape, axis(dim, self.rank))
    return op.reshape(op.gather_points(self.value, points), call.shape)


def _scattered(call: Call, self: Any, dim: int, index: Any, src: Any, kind: str) -> Value:
    """``src`` (a tensor at least as large as ``index``, or a number) put at places along a dim."""
    dtype = dtypes.compute_dtype(call.dtype) if kind == "add" else call.dtype
    if isinstance(src, bool | int | float):
        updates = op.constant(src, index.shape, dtype)
    else:
        updates = op.slice_(op.convert(src.value, dtype), [0] * index.rank, index.shape)
    base = value_at(self, self.shape, dtype)
    if not self.shape:
        return op.reshape(updates, ())
    points = _points(index.value, self.shape, axis(dim, self.rank))
    return op.scatter(base, points, op.reshape(updates, (index.spec.elements,)), kind)


@lowers("aten.scatter")
def _scatter(
    call: Call, self: Any, dim: int, index: Any, src: Any = None, *, value: Any = None,
    reduce: str | None = None, **_: Any,
) -> Value:  # fmt: skip
    kind = "second" if reduce is None else _REDUCE[reduce]
    return _scattered(call, self, dim, index, value if src is None else src, kind)


@lowers("aten.scatter_add")
def _scatter_add(call: Call, self: Any, dim: int, index: Any, src: Any, **_: Any) -> Value:
    return _scattered(call, self, dim, index, src, "add")


@lowers("aten.scatter_reduce")
def _scatter_reduce(
    call: Call, self: Any, dim: int, index: Any, src: Any, reduce: str, *,
    include_self: bool = True, **_: Any,
) -> Value:  # fmt: skip
    if reduce not in _REDUCE or not include_self:
        raise Unsupported(f"{call.name} by {reduce}, include_self={include_self}")
    return _scattered(call, self, dim, index, src, _REDUCE[reduce])


def _index_plan(
    self: Any, indices: Any
) -> tuple[list[int], tuple[int, ...], list[Value], list[int]]:
    """Indexed dims, the indices' common shape, the indices, and the dims left over.

    Raises:
        Unsupported: a boolean mask, whose result's size is data.
    """
    indexed = [at for at, item in enumerate(indices) if item is not None]
    values = []
    common: tuple[int, ...] = ()
    for at in indexed:
        if indices[at].dtype in ("bool", "uint8"):
            raise Unsupported("indexing by a mask: its size depends on data")
        common = _broadcast_shapes(common, indices[at].shape)
    for at in indexed:
        value = op.convert(indices[at].value, "int64")
        negative = op.compare("LT", value, op.like(0, value))
        value = op.select(negative, op.add(value, op.like(self.shape[at], value)), value)
        values.append(op.broadcast(value, common))
    left = [at for at in range(self.rank) if at not in indexed]
    return indexed, common, values, left


def _broadcast_shapes(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(first), len(second))
    a = (1,) * (rank - len(first)) + first
    b = (1,) * (rank - len(second)) + second
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def _place_of_result(indexed: list[int]) -> int:
    """Where the indices' dims stand in the result: at the first, if all are neighbours, else 0."""
    return indexed[0] if indexed == list(range(indexed[0], indexed[-1] + 1)) else 0


@lowers("aten.index")
def _index(call: Call, self: Any, indices: Any) -> Value:
    indexed, common, values, left = _index_plan(self, indices)
    count = math.prod(common)
    value = op.transpose(self.value, indexed + left)
    rows = op.concatenate([op.reshape(item, (count, 1)) for item in values], 1)
    picked = _gather_rows(value, rows, len(indexed))
    rest = [self.shape[at] for at in left]
    picked = op.reshape(picked, (*common, *rest))
    first = _place_of_result(indexed)
    lead = len(common)
    order = [*range(lead, lead + first), *range(lead), *range(lead + first, lead + len(rest))]
    return op.transpose(picked, order)


def _gather_rows(value: Value, rows: Value, depth: int) -> Value:
    """``value[rows[i, 0], rows[i, 1], ...]`` for every i: [n, dims after the first ``depth``]."""
    shape = op.shape_of(value)
    lead, rest = shape[:depth], shape[depth:]
    flat = op.reshape(value, (math.prod(lead), *rest))
    return op.take(flat, _flat_place(rows, lead))


def _flat_place(rows: Value, lead: tuple[int, ...]) -> Value:
    count = op.shape_of(rows)[0]
    place = op.constant(0, (count,), "int64")
    for at, size in enumerate(lead):
        column = op.reshape(op.slice_dim(rows, 1, at, at + 1), (count,))
        place = op.add(op.multiply(place, op.like(size, place)), column)
    return place


@lowers("aten.index_put", "aten._index_put_impl")
def _index_put(
    call: Call, self: Any, indices: Any, values: Any, accumulate: bool = False, *_: Any
) -> Value:
    dtype = call.compute if accumulate else call.dtype
    masks = [at for at, item in enumerate(indices) if item is not None]
    if len(masks) == 1 and indices[masks[0]].dtype == "bool" and values.spec.elements == 1:
        mask = indices[masks[0]]
        dims = list(range(masks[0], masks[0] + mask.rank))
        spread = op.broadcast(mask.value, self.shape, dims)
        new = value_at(op.reshape(values.value, ()), self.shape, dtype)
        old = value_at(self, self.shape, dtype)
        return op.select(spread, op.add(old, new) if accumulate else new, old)
    indexed, common, places, left = _index_plan(self, indices)
    first, rest = _place_of_result(indexed), [self.shape[at] for at in left]
    shape = (*rest[:first], *common, *rest[first:])
    updates = value_at(values, shape, dtype)
    lead = len(common)
    order = [*range(first, first + lead), *range(first), *range(first + lead, len(shape))]
    updates = op.reshape(op.transpose(updates, order), (math.prod(common), *rest))
    rows = op.concatenate([op.reshape(item, (math.prod(common), 1)) for item in places], 1)
    turned = op.transpose(value_at(self, self.shape, dtype), indexed + left)
    kind = "add" if accumulate else "second"
    made = op.scatter(turned, rows, updates, kind)
    turn = indexed + left
    return op.transpose(made, [turn.index(at) for at in range(self.rank)])


@lowers("aten.put")
def _put(call: Call, self: Any, index: Any, source: Any, accumulate: bool = False) -> Value:
    """At places of the tensor as a vector."""
    count, dtype = index.spec.elements, call.compute if accumulate else call.dtype
    place = op.reshape(op.convert(index.value, "int64"), (count, 1))
    negative = op.compare("LT", place, op.like(0, place))
    place = op.select(negative, op.add(place, op.like(self.spec.elements, place)), place)
    updates = op.reshape(value_at(source, source.shape, dtype), (count,))
    flat = op.reshape(value_at(self, self.shape, dtype), (self.spec.elements,))
    made = op.scatter(flat, place, updates, "add" if accumulate else "second")
    return op.reshape(made, self.shape)


@lowers("aten.masked_scatter")
def _masked_scatter(call: Call, self: Any, *_: Any, **__: Any) -> Value:
    raise Unsupported(f"{call.name}: which elements go where depends on data")
