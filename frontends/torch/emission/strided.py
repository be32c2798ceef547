"""Strided views of a flat storage as StableHLO: read one out of a vector, write one into it.

The idea: a view is one of four things, tried in this order.  Dense (a permutation of a contiguous
range): slice, reshape, transpose.  A grid (every stride divides the next larger one): slice of the
range reshaped to the grid.  Neither, as overlapping windows are: a gather or scatter with computed
places.  Repeated dims (stride 0) are read once and broadcast.

    read(flat, View(storage=3, offset=4, shape=(4, 2), stride=(1, 4), dtype="float32"))
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from flint.errors import FlintError
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.recording import View


def dense_order(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[int] | None:
    """Dims from the slowest in memory to the fastest; None when the view is not dense.

    Dims of size 1, whose strides mean nothing, come first.
    """
    ones = [dim for dim, size in enumerate(shape) if size == 1]
    order = [dim for dim, size in enumerate(shape) if size != 1]
    order.sort(key=lambda dim: -stride[dim])
    expected = 1
    for dim in reversed(order):
        if stride[dim] != expected:
            return None
        expected *= shape[dim]
    return ones + order


@dataclass(frozen=True, slots=True)
class Grid:
    """A view as a box in a grid.

    Attributes:
        order: the view's dims of size > 1, from the largest stride to the smallest.
        start, size: of the box, per dim of the grid.
        dims: the grid's shape; the first only as long as the box.
        pitch: elements from one step of the first dim to the next.
    """

    order: tuple[int, ...]
    start: tuple[int, ...]
    size: tuple[int, ...]
    dims: tuple[int, ...]
    pitch: int


def grid_of(view: View) -> Grid | None:
    """The grid in which a view is a box; None when its strides do not nest."""
    order = [dim for dim, size in enumerate(view.shape) if size != 1]
    order.sort(key=lambda dim: -view.stride[dim])
    strides = [view.stride[dim] for dim in order]
    if not order or strides[-1] <= 0:
        return None
    if any(a % b for a, b in itertools.pairwise(strides)):
        return None
    start, rest = [], view.offset
    for stride in strides:
        start.append(rest // stride)
        rest %= stride
    start.append(rest)
    size = [view.shape[dim] for dim in order] + [1]
    dims = [size[0]] + [a // b for a, b in itertools.pairwise(strides)] + [strides[-1]]
    if any(a + b > c for a, b, c in list(zip(start, size, dims, strict=True))[1:]):
        return None
    return Grid(tuple(order), tuple(start), tuple(size), tuple(dims), strides[0])


def overlaps_itself(view: View) -> bool:
    """Whether a dim repeats (stride 0)."""
    return any(not step and size > 1 for size, step in zip(view.shape, view.stride, strict=True))


def read(flat: Value, view: View) -> Value:
    """A view's value.

    Args:
        flat: the storage [n] in the view's dtype.
        view: not empty, inside the storage.
    """
    if overlaps_itself(view):
        kept = [
            dim
            for dim, (size, step) in enumerate(zip(view.shape, view.stride, strict=True))
            if step or size == 1
        ]
        once = View(
            view.storage,
            view.offset,
            tuple(view.shape[dim] for dim in kept),
            tuple(view.stride[dim] for dim in kept),
            view.dtype,
        )
        return op.broadcast(read(flat, once), view.shape, kept)
    count = math.prod(view.shape)
    order = dense_order(view.shape, view.stride)
    if order is not None:
        part = op.slice_dim(flat, 0, view.offset, view.offset + count)
        return from_memory(part, view.shape, order)
    grid = grid_of(view)
    if grid is None:
        return op.reshape(op.take(flat, _places(view)), view.shape)
    box = _in_grid(_padded(flat, grid), grid)
    stop = [grid.size[0], *(a + b for a, b in zip(grid.start, grid.size, strict=True))][1:]
    box = op.slice_(box, [0, *grid.start[1:]], [grid.size[0], *stop[1:]])
    box = op.reshape(box, grid.size[:-1])
    box = op.transpose(box, [grid.order.index(dim) for dim in sorted(grid.order)])
    return op.reshape(box, view.shape)


def write(flat: Value, view: View, value: Value) -> Value:
    """The storage [n] with a view's value replaced.

    Raises:
        FlintError: elements of the view share memory, so that the result depends on an order.
    """
    if overlaps_itself(view):
        raise FlintError(f"a write through a view that repeats memory: {view}")
    count = math.prod(view.shape)
    order = dense_order(view.shape, view.stride)
    if order is not None:
        return op.update_slice(flat, to_memory(value, order), [view.offset])
    grid = grid_of(view)
    if grid is None:
        return op.scatter(flat, _places(view), op.reshape(value, (count,)))
    length = op.shape_of(flat)[0]
    padded = _padded(flat, grid)
    by_dim = sorted(grid.order)
    part = op.reshape(value, [view.shape[dim] for dim in by_dim])
    part = op.transpose(part, [by_dim.index(dim) for dim in grid.order])
    box = op.update_slice(_in_grid(padded, grid), op.reshape(part, grid.size), [0, *grid.start[1:]])
    rows = op.reshape(box, (math.prod(grid.dims),))
    whole = op.update_slice(padded, rows, [grid.start[0] * grid.pitch])
    return op.slice_dim(whole, 0, 0, length)


def from_memory(vector: Value, shape: tuple[int, ...], order: list[int]) -> Value:
    """Elements in memory order, in any shape -> a dense view's value."""
    value = op.reshape(vector, [shape[dim] for dim in order])
    return op.transpose(value, [order.index(dim) for dim in range(len(order))])


def to_memory(value: Value, order: list[int]) -> Value:
    """A dense view's value -> its elements in memory order [n]."""
    return op.reshape(op.transpose(value, order), (math.prod(op.shape_of(value)),))


def _padded(flat: Value, grid: Grid) -> Value:
    """The storage, long enough that the grid's last row is whole."""
    missing = (grid.start[0] + grid.size[0]) * grid.pitch - op.shape_of(flat)[0]
    return op.pad(flat, [0], [missing]) if missing > 0 else flat


def _in_grid(flat: Value, grid: Grid) -> Value:
    first = grid.start[0] * grid.pitch
    return op.reshape(op.slice_dim(flat, 0, first, first + grid.size[0] * grid.pitch), grid.dims)


def _places(view: View) -> Value:
    """Where a view's elements lie in the storage [n, 1]."""
    place = op.constant(view.offset, view.shape, "int64")
    for dim, (size, step) in enumerate(zip(view.shape, view.stride, strict=True)):
        if size > 1 and step:
            along = op.iota(view.shape, dim)
            place = op.add(place, op.multiply(along, op.like(step, along)))
    return op.reshape(place, (math.prod(view.shape), 1))
