"""Reading at computed positions: embeddings, gather, index; and the positions themselves.

The idea: a table is read in place.  Its dims keep their order, and the gather states along which of
them the positions are, so that only the selected rows are accessed.  Negative indices count from
the end if torch allows them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, axis, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.reduction import scanned
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import stablehlo as hlo


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


def points(index: Value, along: int) -> Value:
    """Places [n, rank] of a gather or scatter along a dim: each element's own, but ``index``."""
    own = op.shape_of(index)
    count = math.prod(own)
    columns = [
        op.reshape(op.convert(index, "int64") if at == along else op.iota(own, at), (count, 1))
        for at in range(len(own))
    ]
    return op.concatenate(columns, 1)


def whole_slices(index: Any, shape: tuple[int, ...], along: int) -> Value | None:
    """Positions [n] along a dim of what has this shape, if an index of each element is one column
    repeated over slices as they are; None for any other index.
    """
    if index.kept is None or any(index.shape[dim] > 1 for dim in index.kept if dim != along):
        return None
    sizes = [each[:along] + each[along + 1 :] for each in (index.shape, shape)]
    whole = sizes[0] == sizes[1] and along in index.kept
    return op.reshape(index.once, (index.shape[along],)) if whole else None


@lowers("aten.gather")
def _gather(call: Call, self: Any, dim: int, index: Any, **_: Any) -> Value:
    if not self.shape:
        return op.reshape(self.value, call.shape)
    along = axis(dim, self.rank)
    if (vector := whole_slices(index, self.shape, along)) is not None:
        return op.take(self.value, vector, along)
    places = points(index.value, along)
    return op.reshape(op.gather_points(self.value, places), call.shape)


@dataclass(frozen=True, slots=True)
class Places:
    """The positions that ``x[i, :, j]`` reads.

    Attributes:
        index: [*common, k]: positions along ``dims``.
        dims: the k indexed dims.
        first: position of the dims of ``common`` among the remaining dims.
        shape: of the result.
    """

    index: Value
    dims: tuple[int, ...]
    first: int
    shape: tuple[int, ...]


def places_of(self: Any, indices: Any) -> Places:
    """The places of integer indices, of which those that are None are whole dims.

    Raises:
        Unsupported: a boolean mask, whose result's size is data.
    """
    dims = [at for at, item in enumerate(indices) if item is not None]
    common: tuple[int, ...] = ()
    for at in dims:
        if is_mask(indices[at]):
            raise Unsupported("indexing by a mask: its size depends on data")
        common = _broadcast_shapes(common, indices[at].shape)
    columns = []
    for at in dims:
        value = counted_from_front(op.convert(indices[at].value, "int64"), self.shape[at])
        columns.append(op.reshape(op.broadcast(value, common), (*common, 1)))
    left = [size for at, size in enumerate(self.shape) if at not in dims]
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    shape = (*left[:first], *common, *left[first:])
    return Places(op.concatenate(columns, len(common)), tuple(dims), first, shape)


def counted_from_front(index: Value, size: int) -> Value:
    """Positions along a dim of a size, of which negative ones count from its end."""
    negative = op.compare("LT", index, op.like(0, index))
    return op.select(negative, op.add(index, op.like(size, index)), index)


def is_mask(index: Any) -> bool:
    """Whether an index is a mask."""
    return index is not None and index.dtype in ("bool", "uint8")


def chosen(mask: Value, count: int) -> Value:
    """Places [count, 1] in a mask [n] at which it is set, of which there are so many."""
    place = op.iota(op.shape_of(mask), 0)
    before = op.subtract(scanned(op.convert(mask, "int64"), 0), op.like(1, place))
    # Unselected elements go beyond the end, where a scatter drops them.
    target = op.select(mask, before, op.like(count, place))
    found = op.scatter(
        op.constant(0, (count,), "int64"), op.reshape(target, (*op.shape_of(mask), 1)), place
    )
    return op.reshape(found, (count, 1))


def _broadcast_shapes(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(first), len(second))
    a = (1,) * (rank - len(first)) + first
    b = (1,) * (rank - len(second)) + second
    return tuple(y if x == 1 else x for x, y in zip(a, b, strict=True))


def _of_mask(call: Call, self: Any, first: int, mask: Any) -> Value:
    """``self[:, mask]``: the rows at which a mask of the dims from ``first`` on is set."""
    before, behind = self.shape[:first], self.shape[first + mask.rank :]
    length = mask.spec.elements
    flat = op.reshape(self.value, (*before, length, *behind))
    set_at = op.reshape(op.convert(mask.value, "bool"), (length,))
    return op.gather(flat, chosen(set_at, call.shape[first]), [first], first)


@lowers("aten.masked_select")
def _masked_select(call: Call, self: Any, mask: Any) -> Value:
    shape = _broadcast_shapes(self.shape, mask.shape)
    value, set_at = value_at(self, shape, call.dtype), value_at(mask, shape, "bool")
    count = (math.prod(shape),)
    places = chosen(op.reshape(set_at, count), call.shape[0])
    return op.gather(op.reshape(value, count), places, [0], 0)


@lowers("aten.nonzero")
def _nonzero(call: Call, self: Any) -> Value:
    """The places at which something is not zero, [count, rank]."""
    length, count = self.spec.elements, call.shape[0]
    left = op.reshape(op.convert(self.value, "bool"), (length,))
    place, columns = chosen(left, count), []
    for size in reversed(self.shape):
        columns.append(hlo.remainder(place, op.like(size, place)))
        place = op.divide(place, op.like(size, place))
    return op.concatenate(columns[::-1], 1) if columns else op.constant(0, call.shape, call.dtype)


@lowers("aten.index")
def _index(call: Call, self: Any, indices: Any) -> Value:
    given = [at for at, item in enumerate(indices) if item is not None]
    if len(given) == 1 and is_mask(indices[given[0]]):
        return _of_mask(call, self, given[0], indices[given[0]])
    places = places_of(self, indices)
    return op.gather(self.value, places.index, places.dims, places.first)
