"""Strided views of a storage as StableHLO: read one out of its value, write one into it.

The idea: a storage is a value whose elements are in memory order, in any shape.  A view has one of
four forms, tried in this order.  A box in a grid that the whole storage is reshaped to (every
stride divides the next larger one): reshape, slice, transpose.  Dense (a permutation of a
contiguous range): the same of the flat range.  A box in a grid that ends before the storage does:
the same of the storage cut or padded to whole rows.  Anything else, such as overlapping windows: a
gather or scatter with computed positions.  Repeated dims (stride 0) are read once and broadcast.

    read(value, View(storage=3, offset=4, shape=(4, 2), stride=(1, 4), dtype="float32"))
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from flint.errors import FlintError
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.recording.recording import View


def dense_order(shape: tuple[int, ...], stride: tuple[int, ...]) -> list[int] | None:
    """Dims from the slowest in memory to the fastest; None when the view is not dense.

    Dims of size 1, whose strides have no meaning, come first.
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
        dims: the grid's shape without its first dim, whose length follows from the storage.
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
    size = [view.shape[dim] for dim in order]
    dims = [a // b for a, b in itertools.pairwise(strides)]
    if strides[-1] > 1:
        # The elements between those of the view form one more dim, in which the view has one
        # position.
        start.append(rest)
        size.append(1)
        dims.append(strides[-1])
    if any(a + b > c for a, b, c in zip(start[1:], size[1:], dims, strict=True)):
        return None
    return Grid(tuple(order), tuple(start), tuple(size), tuple(dims), strides[0])


def overlaps_itself(view: View) -> bool:
    """Whether a dim repeats (stride 0)."""
    return any(not step and size > 1 for size, step in zip(view.shape, view.stride, strict=True))


def once(view: View) -> tuple[View, tuple[int, ...]]:
    """A view without the dims that repeat, and which dims those are that it keeps."""
    kept = tuple(
        dim
        for dim, (size, step) in enumerate(zip(view.shape, view.stride, strict=True))
        if step or size == 1
    )
    shape, stride = (tuple(each[dim] for dim in kept) for each in (view.shape, view.stride))
    return View(view.storage, view.offset, shape, stride, view.dtype), kept


def read(memory: Value, view: View) -> Value:
    """A view's value.

    Args:
        memory: the storage's elements of the view's dtype in memory order, in any shape.
        view: not empty, inside the storage.
    """
    if overlaps_itself(view):
        part, kept = once(view)
        return op.broadcast(read(memory, part), view.shape, list(kept))
    count, length = math.prod(view.shape), _length(memory)
    grid = grid_of(view)
    if grid is not None and length % grid.pitch == 0:
        whole = op.reshape(memory, (length // grid.pitch, *grid.dims))
        return _out_of_box(_box(whole, grid.start, grid.size), grid, view.shape)
    order = dense_order(view.shape, view.stride)
    if order is not None:
        part = op.slice_dim(_flat(memory), 0, view.offset, view.offset + count)
        return from_memory(part, view.shape, order)
    if grid is None:
        return op.reshape(op.take(_flat(memory), _places(view)), view.shape)
    rows = _rows(_padded(_flat(memory), grid), grid)
    box = _box(rows, (0, *grid.start[1:]), grid.size)
    return _out_of_box(box, grid, view.shape)


def write(memory: Value, view: View, value: Value) -> Value:
    """The storage with a view's value replaced: its elements in memory order, in any shape.

    Raises:
        FlintError: elements of the view share memory, so that the result depends on an order.
    """
    if overlaps_itself(view):
        raise FlintError(f"a write through a view that repeats memory: {view}")
    count, length = math.prod(view.shape), _length(memory)
    grid = grid_of(view)
    if grid is not None and length % grid.pitch == 0:
        whole = op.reshape(memory, (length // grid.pitch, *grid.dims))
        return op.update_slice(whole, _into_box(value, grid, view.shape), grid.start)
    order = dense_order(view.shape, view.stride)
    if order is not None:
        return op.update_slice(_flat(memory), to_memory(value, order), [view.offset])
    if grid is None:
        flat = op.reshape(value, (count,))
        return op.scatter(_flat(memory), _places(view), flat)
    padded = _padded(_flat(memory), grid)
    box = op.update_slice(
        _rows(padded, grid), _into_box(value, grid, view.shape), (0, *grid.start[1:])
    )
    whole = op.update_slice(padded, _flat(box), [grid.start[0] * grid.pitch])
    return op.slice_dim(whole, 0, 0, length)


def from_memory(memory: Value, shape: tuple[int, ...], order: list[int]) -> Value:
    """Elements in memory order, in any shape -> a dense view's value."""
    value = op.reshape(memory, [shape[dim] for dim in order])
    return op.transpose(value, [order.index(dim) for dim in range(len(order))])


def to_memory(value: Value, order: list[int]) -> Value:
    """A dense view's value -> its elements in memory order [n]."""
    return _flat(op.transpose(value, order))


def _length(memory: Value) -> int:
    return math.prod(op.shape_of(memory))


def _flat(memory: Value) -> Value:
    return op.reshape(memory, (_length(memory),))


def _box(grid: Value, start: tuple[int, ...], size: tuple[int, ...]) -> Value:
    stop = [first + count for first, count in zip(start, size, strict=True)]
    return op.slice_(grid, start, stop)


def _out_of_box(box: Value, grid: Grid, shape: tuple[int, ...]) -> Value:
    """A box in its grid's order -> the view's value."""
    value = op.reshape(box, [shape[dim] for dim in grid.order])
    value = op.transpose(value, [grid.order.index(dim) for dim in sorted(grid.order)])
    return op.reshape(value, shape)


def _into_box(value: Value, grid: Grid, shape: tuple[int, ...]) -> Value:
    """A view's value -> a box in its grid's order."""
    by_dim = sorted(grid.order)
    part = op.reshape(value, [shape[dim] for dim in by_dim])
    part = op.transpose(part, [by_dim.index(dim) for dim in grid.order])
    return op.reshape(part, grid.size)


def _padded(flat: Value, grid: Grid) -> Value:
    """The storage, padded so that the box's last row is complete."""
    missing = (grid.start[0] + grid.size[0]) * grid.pitch - op.shape_of(flat)[0]
    return op.pad(flat, [0], [missing]) if missing > 0 else flat


def _rows(flat: Value, grid: Grid) -> Value:
    """The rows of the grid that contain the box."""
    first = grid.start[0] * grid.pitch
    part = op.slice_dim(flat, 0, first, first + grid.size[0] * grid.pitch)
    return op.reshape(part, (grid.size[0], *grid.dims))


def _places(view: View) -> Value:
    """The positions of a view's elements in the storage, [n, 1]."""
    place = op.constant(view.offset, view.shape, "int64")
    for dim, (size, step) in enumerate(zip(view.shape, view.stride, strict=True)):
        if size > 1 and step:
            along = op.iota(view.shape, dim)
            place = op.add(place, op.multiply(along, op.like(step, along)))
    return op.reshape(place, (math.prod(view.shape), 1))
