"""Checks of ops whose operands say where to read or write.

The rules are those of StableHLO's specification of gather, scatter, dynamic_slice and
dynamic_update_slice, which XLA's shape inference shares.
"""

from __future__ import annotations

from collections.abc import Sequence

from flint.graph.tensor_types import TensorType
from flint.stablehlo.read.records import Op
from flint.stablehlo.verification.kinds import (
    Check,
    Types,
    fixed,
    require,
    same_rank,
    same_shape,
    sizes_of,
)


def _within(small: TensorType, large: TensorType) -> None:
    """Check for as many dims, none larger."""
    same_rank(large, small)
    inside = all(a <= b for a, b in zip(small.shape, large.shape, strict=True))
    require(inside or not fixed(large, small), f"has a part {small} that does not fit into {large}")


def _starts(starts: Types, whole: TensorType) -> None:
    """Check for an index per dim, or one vector of them, as HLO had it once."""
    rank = len(whole.shape)
    scalars = len(starts) == rank and not any(start.shape for start in starts)
    vector = len(starts) == 1 and starts[0].shape == (rank,)
    require(scalars or vector, f"has {len(starts)} indices into {whole}")


def _dynamic_slice(op: Op, ins: Types, outs: Types) -> None:
    require(len(ins) > 0 and len(outs) == 1, f"has {len(ins)} operands")
    _within(outs[0], ins[0])
    _starts(ins[1:], ins[0])
    sizes = op.attr("sizes")
    stated = sizes is None or sizes == outs[0].shape or not fixed(outs[0])
    require(stated, f"has slice sizes {sizes} for the result {outs[0]}")


def _dynamic_update_slice(_op: Op, ins: Types, outs: Types) -> None:
    require(len(ins) > 1 and len(outs) == 1, f"has {len(ins)} operands")
    _within(ins[1], ins[0])
    same_shape(ins[0], outs[0])
    _starts(ins[2:], ins[0])


def _looked_up(op: Op, indices: TensorType) -> tuple[tuple[int, ...], int]:
    """The dims of the indices that are not an index's own, and the numbers in an index."""
    dim, shape = op.attr("index_vector_dim", 0), indices.shape
    require(0 <= dim <= len(shape), f"has no dim {dim} in the indices {indices}")
    return shape[:dim] + shape[dim + 1 :], shape[dim] if dim < len(shape) else 1


def _placed(dims: Sequence[int], rank: int, looked_up: Sequence[int]) -> tuple[int, ...]:
    """Which dims of a tensor of this rank come from the indices; the others are a window's."""
    taken = set(dims)
    require(
        len(taken) == len(dims)
        and all(0 <= dim < rank for dim in dims)
        and rank == len(dims) + len(looked_up),
        f"has window dims {tuple(dims)} of {rank} dims, with {len(looked_up)} from the indices",
    )
    return tuple(dim for dim in range(rank) if dim not in taken)


def _windows_dims(op: Op, whole: TensorType, dropped: str, batching: str, into: str) -> list[int]:
    """The dims of the operand that a window keeps; repeated or missing dims are refused."""
    gone = (*op.attr(dropped, ()), *op.attr(batching, ()))
    sizes_of(whole, gone)
    sizes_of(whole, (*op.attr(batching, ()), *op.attr(into, ())))
    return [dim for dim in range(len(whole.shape)) if dim not in gone]


def _gather(op: Op, ins: Types, outs: Types) -> None:
    require(len(ins) == 2 and len(outs) == 1, f"has {len(ins)} operands, not 2")
    window = op.attr("slice_sizes")
    whole, indices, result = ins[0], ins[1], outs[0]
    if window is None or not fixed(whole, indices, result):
        return
    fits = len(window) == len(whole.shape) and all(
        0 <= part <= size for part, size in zip(window, whole.shape, strict=True)
    )
    require(fits, f"has windows of {window} that do not fit into {whole}")
    kept = _windows_dims(
        op, whole, "collapsed_slice_dims", "operand_batching_dims", "start_index_map"
    )
    single = all(window[dim] <= 1 for dim in range(len(window)) if dim not in kept)
    require(single, f"drops a dim longer than 1 from windows of {window}")
    looked_up, numbers = _looked_up(op, indices)
    _as_many(op.attr("start_index_map", ()), numbers, indices)
    offsets = op.attr("offset_dims", ())
    _batched(op, whole, indices, "operand_batching_dims", "start_indices_batching_dims")
    beside = _placed(offsets, len(result.shape), looked_up)
    made = (
        tuple(result.shape[dim] for dim in sorted(offsets)),
        tuple(result.shape[dim] for dim in beside),
    )
    text = f"does not yield the result {result} from windows of {window} at the indices {indices}"
    require(made == (tuple(window[dim] for dim in kept), looked_up), text)


def _as_many(mapped: Sequence[int], numbers: int, indices: TensorType) -> None:
    text = f"has the indices {indices}, of {numbers} numbers each, for {len(mapped)} dims"
    require(len(mapped) == numbers, text)


def _batched(op: Op, whole: TensorType, indices: TensorType, one: str, other: str) -> None:
    first, second = op.attr(one, ()), op.attr(other, ())
    alike = sizes_of(whole, first) == sizes_of(indices, second)
    require(alike, f"pairs the dims {first} of {whole} with {second} of the indices {indices}")


def _scatter(op: Op, ins: Types, outs: Types) -> None:
    count = len(outs)
    require(len(ins) == 2 * count + 1 > 1, f"has {len(ins)} operands and {count} results")
    wholes, indices, updates = ins[:count], ins[count], ins[count + 1 :]
    for one, other in zip(wholes, outs, strict=True):
        same_shape(one, other)
        same_shape(one, outs[0])
    for update in updates:
        same_shape(update, updates[0])
    dims = op.attr("update_window_dims")
    if dims is None or not fixed(*ins, *outs):
        return
    whole, update = wholes[0], updates[0]
    kept = _windows_dims(
        op, whole, "inserted_window_dims", "input_batching_dims", "scatter_dims_to_operand_dims"
    )
    looked_up, numbers = _looked_up(op, indices)
    _as_many(op.attr("scatter_dims_to_operand_dims", ()), numbers, indices)
    _batched(op, whole, indices, "input_batching_dims", "scatter_indices_batching_dims")
    beside = _placed(dims, len(update.shape), looked_up)
    text = f"has the updates {update} at the indices {indices} of {whole}"
    require(len(dims) == len(kept), text)
    inside = all(update.shape[a] <= whole.shape[b] for a, b in zip(sorted(dims), kept, strict=True))
    require(inside and tuple(update.shape[dim] for dim in beside) == looked_up, text)


CHECKS: dict[str, Check] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
}
