"""Ops that move elements to other places: concatenation, padding, copies of views, repetition.

Views themselves launch nothing and have no lowering; their ``_copy`` variants and derivatives do.
"""

from __future__ import annotations

import math
from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, axes, axis, value_at
from flint.frontends.torch.lowerings.decomposed import decomposition_of
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.reduction import scanned
from flint.frontends.torch.lowerings.table import lowering_of, lowers


@lowers("aten.cat")
def _cat(call: Call, tensors: Any, dim: int = 0, **_: Any) -> Value:
    filled = [item for item in tensors if item.shape != (0,) or len(call.shape) == 1]
    along = axis(dim, len(call.shape))
    return op.concatenate([value_at(item, item.shape, call.dtype) for item in filled], along)


@lowers("aten.constant_pad_nd")
def _constant_pad(call: Call, self: Any, pad: Any, value: Any = 0, **_: Any) -> Value:
    low, high = [0] * self.rank, [0] * self.rank
    for at in range(len(pad) // 2):
        low[-1 - at], high[-1 - at] = pad[2 * at], pad[2 * at + 1]
    return op.pad(self.value, low, high, value)


@lowers("aten.slice_backward")
def _slice_backward(
    call: Call, grad_output: Any, input_sizes: Any, dim: int, start: int, end: int, step: int
) -> Value:
    rank = len(input_sizes)
    along, size = axis(dim, rank), input_sizes[axis(dim, rank)]
    first = 0 if start is None else min(max(start + size if start < 0 else start, 0), size)
    count = grad_output.shape[along]
    used = (count - 1) * step + 1 if count else 0
    low, high, inside = [0] * rank, [0] * rank, [0] * rank
    low[along], high[along], inside[along] = first, size - first - used, step - 1
    if not count:
        return op.constant(0, call.shape, call.dtype)
    return op.pad(grad_output.value, low, high, 0, inside)


@lowers("aten.slice_scatter")
def _slice_scatter(
    call: Call, self: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None,
    step: int = 1, **_: Any,
) -> Value:  # fmt: skip
    if step != 1:
        raise Unsupported("aten.slice_scatter with a step")
    along = axis(dim, self.rank)
    size = self.shape[along]
    first = 0 if start is None else min(max(start + size if start < 0 else start, 0), size)
    place = [first if at == along else 0 for at in range(self.rank)]
    return op.update_slice(self.value, value_at(src, src.shape, call.dtype), place)


@lowers("aten.select_scatter")
def _select_scatter(call: Call, self: Any, src: Any, dim: int, index: int, **_: Any) -> Value:
    along = axis(dim, self.rank)
    shape = tuple(1 if at == along else n for at, n in enumerate(self.shape))
    place = [index % self.shape[along] if at == along else 0 for at in range(self.rank)]
    return op.update_slice(self.value, op.reshape(src.value, shape), place)


@lowers("aten.flip")
def _flip(call: Call, self: Any, dims: Any, **_: Any) -> Value:
    return op.reverse(self.value, axes(tuple(dims), self.rank) if dims else [])


@lowers("aten.roll")
def _roll(call: Call, self: Any, shifts: Any, dims: Any = (), **_: Any) -> Value:
    shifts = shifts if isinstance(shifts, tuple | list) else (shifts,)
    dims = dims if isinstance(dims, tuple | list) else (dims,)
    value = self.value
    shape = self.shape
    if not dims:
        value, dims = op.reshape(value, (math.prod(shape),)), (0,)
    for shift, dim in zip(shifts, dims, strict=True):
        along = axis(dim, len(op.shape_of(value)))
        size = op.shape_of(value)[along]
        cut = -shift % size if size else 0
        if cut:
            parts = [op.slice_dim(value, along, cut, size), op.slice_dim(value, along, 0, cut)]
            value = op.concatenate(parts, along)
    return op.reshape(value, shape)


@lowers("aten.repeat_interleave")
def _repeat_interleave(
    call: Call, self: Any, repeats: Any = None, dim: Any = None, **_: Any
) -> Value:
    """Row indices, entry i ``repeats[i]`` times: a running count of the entries that have begun."""
    if call.overload != "Tensor":
        raise Unsupported(call.name)
    size, length = self.shape[0], call.shape[0]
    if size < 2 or not length:
        return op.constant(0, call.shape, call.dtype)
    ends = scanned(op.convert(self.value, "int64"), 0)
    begins = op.reshape(op.slice_dim(ends, 0, 0, size - 1), (size - 1, 1))
    # An entry that begins at the end has no row; an update out of bounds has no effect.
    begun = op.scatter(
        op.constant(0, (length,), "int64"), begins, op.constant(1, (size - 1,), "int64"), "add"
    )
    return scanned(begun, 0)


@lowers("aten.view_copy", "aten._reshape_copy", "aten._unsafe_view")
def _reshaped(call: Call, self: Any, *_: Any, **__: Any) -> Value:
    if dtypes.size(self.dtype) * math.prod(self.shape) != dtypes.size(call.dtype) * math.prod(
        call.shape
    ):
        raise Unsupported(f"{call.name} to another size")
    if self.dtype != call.dtype:
        flat = op.bitcast(op.reshape(self.value, (math.prod(self.shape),)), call.dtype)
        return op.reshape(flat, call.shape)
    return op.reshape(self.value, call.shape)


@lowers("aten.diagonal_copy")
def _diagonal(call: Call, self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Every (n + 1)-th element of the square of n rows that has the diagonal as its own."""
    rows, columns = axis(dim1, self.rank), axis(dim2, self.rank)
    others = [dim for dim in range(self.rank) if dim not in (rows, columns)]
    *lead, count = call.shape
    square = op.transpose(self.value, [*others, rows, columns])
    for dim, start in ((len(lead), max(-offset, 0)), (len(lead) + 1, max(offset, 0))):
        square = op.slice_dim(square, dim, start, start + count)
    flat = op.reshape(square, (*lead, count * count))
    return op.slice_dim(flat, len(lead), 0, count * count, count + 1)


@lowers("aten.split_with_sizes_copy", "aten.split_copy", "fsdp.split_with_sizes_copy")
def _split_along(call: Call, self: Any, sizes: Any = None, dim: int = 0, **_: Any) -> list[Value]:
    """Parts along a dim, one per target; ``sizes`` is their length, or one length for all."""
    along = axis(dim, self.rank)
    if isinstance(sizes, int):
        sizes = [spec.shape[along] for spec in call.targets]
    value, start, parts = self.value, 0, []
    for size, spec in zip(sizes, call.targets, strict=True):
        part = op.slice_dim(value, along, start, start + size)
        parts.append(op.reshape(part, spec.shape))
        start += size
    return parts


@lowers("aten.upsample_nearest2d")
def _upsample_nearest(call: Call, self: Any, *rest: Any, **named: Any) -> Any:
    """Every element repeated, for whole factors; for others as PyTorch decomposes it."""
    factors = [new / old for new, old in zip(call.shape[-2:], self.shape[-2:], strict=True)]
    if any(factor != int(factor) for factor in factors):
        apart = decomposition_of(call.name, lowering_of)
        if apart is None:
            raise Unsupported(f"{call.name} by {factors[0]:g} x {factors[1]:g}")
        return apart(call, self, *rest, **named)
    *lead, rows, columns = self.shape
    at = len(lead)
    spread = (*lead, rows, int(factors[0]), columns, int(factors[1]))
    value = op.broadcast(self.value, spread, [*range(at), at, at + 2])
    return op.reshape(value, call.shape)


@lowers("fsdp.all_gather_copy_in")
def _all_gather_copy_in(call: Call, all_gather_inputs: Any, *_: Any, **__: Any) -> list[Any]:
    """This rank's shards one after another into its part of the gathered buffer.

    The first target is that part; others (the buffer) hold it already.
    """
    parts = [
        op.reshape(value_at(item, item.shape, call.dtype), (math.prod(item.shape),))
        for item in all_gather_inputs
    ]
    joined = op.reshape(op.concatenate(parts, 0), call.shape)
    return [joined] + [None] * (len(call.targets) - 1)
