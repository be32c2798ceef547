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
    scalar,
    sizes_of,
)


def _none(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 0)


def _constant(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 0)
    value = op.attr("value")
    stated = () if value is None else value.shape  # one number may stand for all
    text = f"has a value of shape {stated} for the result {outs[0]}"
    require(not stated or stated == outs[0].shape or not fixed(*outs), text)


def _number(op: Op, ins: Types, outs: Types) -> None:
    _none(op, ins, outs)
    scalar(outs[0], "result")


def _dimension_size(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1)
    scalar(outs[0], "result")


def _set_dimension_size(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 2)
    same_shape(ins[0], outs[0])
    same_rank(ins[0], outs[0])
    scalar(ins[1])


def _dynamic_reshape(_op: Op, ins: Types, outs: Types) -> None:
    require(len(ins) > 1 and len(outs) == 1, f"has {len(ins)} operands and {len(outs)} results")


def _iota(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 0)
    dim = op.attr("dimension", 0)
    require(0 <= dim < len(outs[0].shape), f"has no dim {dim} in the result {outs[0]}")


def _transpose(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1)
    order, shape = op.attr("dimensions", ()), ins[0].shape
    require(
        sorted(order) == list(range(len(shape))),
        f"has a permutation {order} that does not fit {ins[0]}",
    )
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
    require(
        len(start) == len(limit) == len(strides) == rank,
        f"has slice bounds for dims other than those of {ins[0]}",
    )
    if not fixed(*ins, *outs):
        return
    rows = zip(start, limit, strides, ins[0].shape, outs[0].shape, strict=True)
    for low, high, step, size, kept in rows:
        inside = 0 <= low <= high <= size and step > 0
        require(inside and kept == -(-(high - low) // max(step, 1)), _from(ins[0], outs[0]))


def _pad(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 2)
    same_rank(ins[0], outs[0])
    scalar(ins[1])
    if op.attr("low") is None or not fixed(ins[0], outs[0]):
        return
    low, high, between = (op.attr(key) for key in ("low", "high", "between"))
    rank = len(ins[0].shape)
    require(
        len(low) == len(high) == len(between) == rank,
        f"has padding for dims other than those of {ins[0]}",
    )
    require(all(gap >= 0 for gap in between), "has negative padding between elements")
    expected = tuple(
        size + before + behind + gap * max(size - 1, 0)
        for size, before, behind, gap in zip(ins[0].shape, low, high, between, strict=True)
    )
    require(expected == outs[0].shape, _from(ins[0], outs[0]))


def _reverse(op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1)
    same_shape(ins[0], outs[0])
    sizes_of(ins[0], op.attr("dimensions", ()))


def _from(operand: TensorType, result: TensorType) -> str:
    return f"does not yield the result {result} from the operand {operand}"


def _bitcast_convert(_op: Op, ins: Types, outs: Types) -> None:
    counted(ins, outs, 1)
    if fixed(*ins, *outs) and ins[0].bytes != outs[0].bytes:
        raise Unfit(_from(ins[0], outs[0]))


CHECKS: dict[str, Check] = {
    "bitcast_convert": _bitcast_convert,
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "constant": _constant,
    "dynamic_reshape": _dynamic_reshape,
    "get_dimension_size": _dimension_size,
    "iota": _iota,
    "mhlo.copy": _elements,
    "pad": _pad,
    "partition_id": _number,
    "replica_id": _number,
    "reshape": _elements,
    "reverse": _reverse,
    "set_dimension_size": _set_dimension_size,
    "slice": _slice,
    "transpose": _transpose,
}
