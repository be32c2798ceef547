"""Writing at computed places: index_copy, index_put, scatter and the like.

The idea: a buffer is written in place.  Its dims keep their order and its elements their type, and
the scatter states along which dims the positions are, so that an in-place kernel touches only the
elements that it writes.

    cache.index_copy_(2, position, keys)     a scatter along dim 2 of the cache as it is
"""

from __future__ import annotations

import math
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, axis, value_at
from flint.frontends.torch.lowerings.indexing import (
    chosen,
    counted_from_front,
    is_mask,
    places_of,
    points,
    whole_slices,
)
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.reduction import scanned
from flint.frontends.torch.lowerings.table import lowers

_REDUCE = {
    "add": "add", "sum": "add", "multiply": "multiply", "prod": "multiply", "amax": "maximum",
    "amin": "minimum", "mean": "mean",
}  # fmt: skip


def _put_at(
    value: Value, index: Value, updates: Value, kind: str, dims: Any = None, first: int = 0,
    *, keeps: bool = True,
) -> Value:  # fmt: skip
    """``value`` with updates combined at places (see ``operations.scatter``).

    Args:
        value, index, updates, dims, first: of the scatter.
        kind: of the scatter, or "mean" of the values for a position.
        keeps: the existing value at a position counts as well.

    Raises:
        Unsupported: a mean of integers.
    """
    dtype = op.dtype_of(value)
    if not keeps:
        neutral = op.initial("add" if kind == "mean" else kind, dtype)
        start = op.broadcast(neutral, op.shape_of(updates), [])
        value = op.scatter(value, index, start, "second", dims, first)
    if kind != "mean":
        return op.scatter(value, index, updates, kind, dims, first)
    if not dtypes.is_float(dtype):
        raise Unsupported(f"a mean of {dtype} at indices")
    total = op.scatter(value, index, updates, "add", dims, first)
    count = op.like(1 if keeps else 0, value)
    count = op.scatter(count, index, op.like(1, updates), "add", dims, first)
    return op.divide(total, op.maximum(count, op.like(1, count)))


def _put_along(
    call: Call, self: Any, dim: int, index: Value, rows: Any, kind: str, *, scale: Any = 1,
    keeps: bool = True,
) -> Value:  # fmt: skip
    """Rows (a tensor, or a number for all) at positions along a dim; a scalar has one place."""
    along, count = axis(dim, self.rank), math.prod(op.shape_of(index))
    shape = self.shape or (1,)
    value = op.reshape(self.value, shape)
    wanted = [count if at == along else size for at, size in enumerate(shape)]
    updates = value_at(rows, wanted, call.dtype)
    if scale != 1:
        updates = op.multiply(updates, op.like(scale, updates))
    place = op.reshape(index, (count, 1))
    made = _put_at(value, place, updates, kind, [along], along, keeps=keeps)
    return op.reshape(made, call.shape)


@lowers("aten.index_add")
def _index_add(
    call: Call, self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1, **_: Any
) -> Value:
    return _put_along(call, self, dim, index.value, source, "add", scale=alpha)


@lowers("aten.index_copy", "aten.index_fill")
def _index_copy(call: Call, self: Any, dim: int, index: Any, source: Any, **_: Any) -> Value:
    return _put_along(call, self, dim, index.value, source, "second")


@lowers("aten.index_reduce")
def _index_reduce(
    call: Call, self: Any, dim: int, index: Any, source: Any, reduce: str, *,
    include_self: bool = True, **_: Any,
) -> Value:  # fmt: skip
    return _put_along(call, self, dim, index.value, source, _REDUCE[reduce], keeps=include_self)


def _scattered(
    call: Call, self: Any, dim: int, index: Any, src: Any, kind: str, *, keeps: bool = True
) -> Value:
    """``src`` (a tensor at least as large as ``index``, or a number) put at places along a dim."""
    base = op.reshape(self.value, self.shape or (1,))
    vector = whole_slices(index, self.shape, axis(dim, self.rank)) if self.shape else None
    if vector is not None and getattr(src, "shape", index.shape) == index.shape:
        return _put_along(call, self, dim, vector, src, kind, keeps=keeps)
    if isinstance(src, bool | int | float):
        updates = op.constant(src, index.shape, call.dtype)
    else:
        updates = op.slice_(op.convert(src.value, call.dtype), [0] * index.rank, index.shape)
    place = points(op.reshape(index.value, index.shape or (1,)), axis(dim, self.rank))
    updates = op.reshape(updates, (index.spec.elements,))
    return op.reshape(_put_at(base, place, updates, kind, keeps=keeps), call.shape)


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
    return _scattered(call, self, dim, index, src, _REDUCE[reduce], keeps=include_self)


@lowers("aten.index_put", "aten._index_put_impl")
def _index_put(
    call: Call, self: Any, indices: Any, values: Any, accumulate: bool = False, *_: Any
) -> Value:
    value, kind = self.value, "add" if accumulate else "second"
    given = [at for at, item in enumerate(indices) if item is not None]
    if len(given) == 1 and is_mask(indices[given[0]]):
        return _put_where(call, value, given[0], indices[given[0]], values, kind)
    places = places_of(self, indices)
    updates = value_at(values, places.shape, call.dtype)
    return op.scatter(value, places.index, updates, kind, places.dims, places.first)


def _put_where(call: Call, value: Value, first: int, mask: Any, values: Any, kind: str) -> Value:
    """``value`` with others where a mask of its dims from ``first`` on is set.

    As many rows as there are values; one row for all is a choice at every place.
    """
    shape = call.shape
    before, behind = shape[:first], shape[first + mask.rank :]
    at = values.rank - 1 - len(behind)
    count = values.shape[at] if at >= 0 else 1
    everywhere = op.convert(mask.value, "bool")
    if count == 1:
        spread = op.broadcast(everywhere, shape, list(range(first, first + mask.rank)))
        kept = [dim for dim in range(values.rank) if dim != at]
        row = op.reshape(op.convert(values.value, call.dtype), [values.shape[d] for d in kept])
        left = [dim for dim in range(len(shape)) if not first <= dim < first + mask.rank]
        new = op.broadcast(row, shape, left[len(left) - len(kept) :])
        return op.select(spread, op.add(value, new) if kind == "add" else new, value)
    length = mask.spec.elements
    flat = op.reshape(value, (*before, length, *behind))
    rows = value_at(values, (*before, count, *behind), call.dtype)
    places = chosen(op.reshape(everywhere, (length,)), count)
    return op.reshape(op.scatter(flat, places, rows, kind, [first], first), shape)


@lowers("aten.put")
def _put(call: Call, self: Any, index: Any, source: Any, accumulate: bool = False) -> Value:
    """At places of the tensor as a vector."""
    count = index.spec.elements
    flat = op.reshape(self.value, (self.spec.elements,))
    place = op.reshape(op.convert(index.value, "int64"), (count, 1))
    place = counted_from_front(place, self.spec.elements)
    updates = op.reshape(value_at(source, source.shape, call.dtype), (count,))
    made = op.scatter(flat, place, updates, "add" if accumulate else "second")
    return op.reshape(made, self.shape)


@lowers("aten.masked_scatter")
def _masked_scatter(call: Call, self: Any, mask: Any, source: Any, **_: Any) -> Value:
    """The n-th place at which the mask is set gets the n-th value."""
    value, count = self.value, math.prod(call.shape)
    everywhere = op.reshape(value_at(mask, call.shape, "bool"), (count,))
    number = op.subtract(
        scanned(op.convert(everywhere, "int64"), 0), op.constant(1, (count,), "int64")
    )
    flat = op.reshape(op.convert(source.value, call.dtype), (source.spec.elements,))
    new = op.take(flat, number)
    return op.select(op.reshape(everywhere, call.shape), op.reshape(new, call.shape), value)
