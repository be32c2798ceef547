"""Checks of ops that move data: dims of the result follow from the operand's and the attributes."""

from __future__ import annotations

from flint.graph.tensor_types import TensorType
from flint.stablehlo.read.records import Op
from flint.stablehlo.verification.kinds import (
    Check,
    Types,
    Unfit,
    counted,
    fixed,
    require,
    same_rank,
    same_shape,
)


def _none(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 0)


def _iota(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 0)
    dim = op.attr("dimension", 0)
    require(0 <= dim < len(outs[0].shape), f"has no dim {dim} in the result {outs[0]}")


def _transpose(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1)
    order, shape = op.attr("dimensions", ()), ins[0].shape
    require(sorted(order) == list(range(len(shape))), f"has no order {order} of the dims {ins[0]}")
    expected = tuple(shape[dim] for dim in order)
    require(expected == outs[0].shape or not fixed(*ins, *outs), _from(ins[0], outs[0]))


def _broadcast(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1)
    dims, shape, wide = op.attr("dimensions", ()), ins[0].shape, outs[0].shape
    require(
        len(dims) == len(shape) and len(set(dims)) == len(dims)
        and all(0 <= dim < len(wide) for dim in dims),
        f"has the dims {dims} for the operand {ins[0]} in the result {outs[0]}",
    )  # fmt: skip
    fits = all(size in (1, wide[dim]) for size, dim in zip(shape, dims, strict=True))
    require(fits or not fixed(*ins, *outs), _from(ins[0], outs[0]))


def _elements(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1)
    as_many = ins[0].elements == outs[0].elements
    require(as_many or not fixed(*ins, *outs), _from(ins[0], outs[0]))


def _concatenate(op: Op, ins: Types, outs: Types) -> None:
    require(len(ins) > 0 and len(outs) == 1, f"has {len(ins)} operands and {len(outs)} results")
    dim, whole = op.attr("dimension", 0), outs[0].shape
    require(0 <= dim < len(whole), f"has no dim {dim} in the result {outs[0]}")
    for item in ins:
        same_rank(item, outs[0])
    if not fixed(*ins, *outs):
        return
    expected = list(ins[0].shape)
    expected[dim] = sum(item.shape[dim] for item in ins)
    alike = {item.shape[:dim] + item.shape[dim + 1 :] for item in ins}
    require(len(alike) == 1 and tuple(expected) == whole, _from(ins[0], outs[0]))


def _slice(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1)
    same_rank(ins[0], outs[0])
    start, limit, strides = (op.attr(key, ()) for key in ("start", "limit", "strides"))
    rank = len(ins[0].shape)
    require(len(start) == len(limit) == len(strides) == rank, f"slices other dims than {ins[0]}")
    if not fixed(*ins, *outs):
        return
    rows = zip(start, limit, strides, ins[0].shape, outs[0].shape, strict=True)
    for low, high, step, size, kept in rows:
        inside = 0 <= low <= high <= size and step > 0
        require(inside and kept == -(-(high - low) // max(step, 1)), _from(ins[0], outs[0]))


def _part(whole: int, part: int) -> Check:
    """Of as many dims, none larger.

    Args:
        whole: operand that is the larger.
        part: operand that is the smaller; -1: the result.
    """

    def check(_op: Op, ins: Types, outs: Types) -> None:
        require(len(ins) > max(whole, part) and len(outs) == 1, f"has {len(ins)} operands")
        large, small = ins[whole], outs[0] if part < 0 else ins[part]
        same_rank(large, small)
        within = all(a <= b for a, b in zip(small.shape, large.shape, strict=True))
        require(within or not fixed(large, small), f"has the part {small} of {large}")

    return check


def _dynamic_update_slice(op: Op, ins: Types, outs: Types) -> None:
    _part(0, 1)(op, ins, outs)
    same_shape(ins[0], outs[0])


def _pad(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 2)
    same_rank(ins[0], outs[0])
    require(not ins[1].shape, f"pads with {ins[1]}, which is no scalar")


def _gather(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 2)
    require(ins[0].dtype == outs[0].dtype, _from(ins[0], outs[0]))


def _scatter(_op: Op, ins: Types, outs: Types) -> None:
    inputs = len(outs)
    require(len(ins) == 2 * inputs + 1, f"has {len(ins)} operands and {inputs} results")
    for one, other in zip(ins[:inputs], outs, strict=True):
        same_shape(one, other)


def _from(operand: TensorType, result: TensorType) -> str:
    return f"does not make the result {result} of the operand {operand}"


def _bitcast_convert(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1)
    if fixed(*ins, *outs) and ins[0].bytes != outs[0].bytes:
        raise Unfit(_from(ins[0], outs[0]))


CHECKS: dict[str, Check] = {
    "bitcast_convert": _bitcast_convert,
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "constant": _none,
    "dynamic_slice": _part(0, -1),
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "iota": _iota,
    "mhlo.copy": _elements,
    "pad": _pad,
    "partition_id": _none,
    "replica_id": _none,
    "reshape": _elements,
    "scatter": _scatter,
    "slice": _slice,
    "transpose": _transpose,
}
