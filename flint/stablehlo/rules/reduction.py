"""Ops that apply a region many times: reduce, reduce_window, scan, scatter, map and others.

The idea: the region works on scalars, so that its work per application is a count of its
elementwise ops by unit; the op's work is that times the number of applications, as in XLA's cost
analysis:

    reduce               input elements - result elements (of the first operand)
    reduce_window        result elements x (window size - 1)
    select_and_scatter   source elements x (window size - 1) of select, source elements of scatter
    scatter              update elements
    map                  result elements
    scan                 elements of the scanned operand

One reduce_window is special in XLA and here: a window of 2 n - 1 over n elements padded with n - 1
on both sides is a reduction that is broadcast back, and counts as such.  Another is special here
only: a window of n over n elements padded with n - 1 on one side is a running sum.  XLA's analysis
counts n windows of n; its backends make a scan of it (``reduce_window_rewriter.cc``), of 2 (n - 1)
applications in the form that does the least work in parallel (Blelloch, "Prefix sums and their
applications", 1990).  Up to ``LONGEST_WINDOW`` they leave windows as they are.

An op of a region works in the type of its own operands: a maximum and its place, in f32 and i32.

A region that calls a function or nests another region op counts without it: readers inline calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from flint.errors import FlintError
from flint.graph.tensor_types import TensorType
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.stablehlo.read.records import Block, Op
from flint.stablehlo.rules.bytes import boundary, total_bytes
from flint.stablehlo.rules.elementwise import UNIT_OF
from flint.stablehlo.rules.rule import Rule


def region_counts(block: Block, kinds: Sequence[str]) -> dict[tuple[Unit, str], int]:
    """Ops of one application of a scalar region, by unit and type: that of their first operand, as
    for whole tensors.

    Args:
        block: the region.
        kinds: types of the elements that it combines; its arguments have them in turn.
    """
    counts: dict[tuple[Unit, str], int] = {}
    known = {value: kinds[place % len(kinds)] for place, value in enumerate(block.args)}
    for op in block.ops:
        unit = UNIT_OF.get(op.name.removeprefix("mhlo."), UNIT_OF.get(op.name))
        # A choice is made in the type of what is chosen; a comparison makes a predicate.
        chooses = op.name.endswith("select") and len(op.operands) == 3
        first = op.operands[1 if chooses else 0 : 2 if chooses else 1]
        kind = next((known[value] for value in first if value in known), kinds[0])
        made = "i1" if op.name in _PREDICATES else kind
        known.update(dict.fromkeys(op.results, made))
        if unit in (Unit.VECTOR, Unit.TRANSCENDENTAL):
            counts[unit, kind] = counts.get((unit, kind), 0) + 1
    return counts


#: Ops whose results are predicates, whatever they are made from.
_PREDICATES: Final = ("compare", "is_finite")


def region_items(
    op: Op, region: int, kinds: Sequence[str], applications: int
) -> tuple[WorkItem, ...]:
    """The work of applying region number ``region`` of ``op`` that many times.

    Raises:
        FlintError: the op has no such region.
    """
    if region >= len(op.regions):
        raise FlintError(f"{op.name} lacks its region {region}")
    counts = region_counts(op.regions[region], kinds) if applications > 0 else {}
    return tuple(
        WorkItem(unit, kind, count * applications) for (unit, kind), count in sorted(counts.items())
    )


def _kinds(tensors: Sequence[TensorType], outs: Sequence[TensorType]) -> list[str]:
    """Types of what an op with several operands combines, each with its own initial value."""
    return [tensor.dtype for tensor in tensors[: len(outs)]]


def _reduce(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    applications = prod(ins[0].shape) - prod(outs[0].shape)
    items = region_items(op, 0, _kinds(ins, outs), applications)
    return Work(items, total_bytes(ins), total_bytes(outs))


def _broadcast_back(op: Op, shape: tuple[int, ...], window: Sequence[int]) -> int | None:
    """Applications of the reduce_window that is a reduction broadcast back; None for any other."""
    padding = op.attr("padding") or ()
    wide = [dim for dim, size in enumerate(window) if size != 1]
    padded = [dim for dim, (low, high) in enumerate(padding) if low or high]
    if len(wide) != 1 or wide != padded:
        return None
    dim = wide[0]
    low, high = padding[dim]
    if low != high or window[dim] != 2 * low + 1 or low != shape[dim] - 1:
        return None
    return prod(shape) // shape[dim] + shape[dim] - 1


#: Elements of the longest running sum that a backend still computes window by window: TPU's.
LONGEST_WINDOW = 128


def _running(op: Op, operand: tuple[int, ...], window: Sequence[int]) -> int | None:
    """Applications of the reduce_window that is a running sum; None for any other."""
    padding = op.attr("padding") or ()
    wide = [dim for dim, size in enumerate(window) if size != 1]
    if len(wide) != 1 or len(padding) != len(window):
        return None
    dim = wide[0]
    length = operand[dim]
    moved = any(
        step != 1
        for name in ("strides", "base_dilations", "window_dilations")
        for step in op.attr(name) or ()
    )
    if (
        moved
        or length <= LONGEST_WINDOW
        or window[dim] != length
        or sorted(padding[dim]) != [0, length - 1]
    ):
        return None
    if any(tuple(pair) != (0, 0) for at, pair in enumerate(padding) if at != dim):
        return None
    return prod(operand) // length * 2 * (length - 1)


def _reduce_window(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    window = op.attr("window_dimensions", ())
    shape = outs[0].shape
    if len(window) != len(shape):
        raise FlintError(f"{op.name}: a window of rank {len(window)} on {ins[0]}")
    applications = _broadcast_back(op, shape, window) if len(outs) == 1 else None
    if applications is None:
        applications = _running(op, ins[0].shape, window)
    if applications is None:
        applications = prod(shape) * (prod(window) - 1)
    items = region_items(op, 0, _kinds(ins, outs), applications)
    return Work(items, total_bytes(ins), total_bytes(outs))


def _select_and_scatter(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    sources = prod(ins[1].shape)
    window = prod(op.attr("window_dimensions", ()))
    dtype = ins[0].dtype
    select = region_items(op, 0, [dtype], sources * (window - 1))
    scatter = region_items(op, 1, [dtype], sources)
    return Work(_merged(select + scatter), total_bytes(ins), total_bytes(outs))


def _merged(items: Sequence[WorkItem]) -> tuple[WorkItem, ...]:
    sums: dict[tuple[Unit, str], int] = {}
    for item in items:
        key = item.unit, item.dtype
        sums[key] = sums.get(key, 0) + item.flops
    return tuple(WorkItem(unit, dtype, flops) for (unit, dtype), flops in sums.items())


def _scatter(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """Reads the updates, the places they go to and the indices; writes those places."""
    count = (len(ins) - 1) // 2
    updates = ins[count + 1 :]
    size = total_bytes(updates)
    items = region_items(op, 0, [each.dtype for each in updates], prod(updates[0].shape))
    return Work(items, 2 * size + ins[count].bytes, size, max(0, total_bytes(outs) - size))


def _map(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    items = region_items(op, 0, [each.dtype for each in ins], prod(outs[0].shape))
    return Work(items, total_bytes(ins), total_bytes(outs))


def _scan(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """The body works on slices: its ops run once per element of the first scanned operand."""
    items = region_items(op, 0, [ins[0].dtype], prod(ins[0].shape))
    return Work(items, total_bytes(ins), total_bytes(outs))


def _unary_einsum(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """What is summed away: one addition per element that the result lacks."""
    additions = prod(ins[0].shape) - prod(outs[0].shape)
    if additions <= 0:
        return boundary(_op, ins, outs)
    item = WorkItem(Unit.VECTOR, ins[0].dtype, additions)
    return Work((item,), total_bytes(ins), total_bytes(outs))


RULES: dict[str, Rule] = {
    "reduce": Rule(Role.REDUCTION, _reduce, types_only=False),
    "reduce_window": Rule(Role.REDUCTION, _reduce_window, types_only=False),
    "chlo.scan": Rule(Role.REDUCTION, _scan, types_only=False),
    "mhlo.scan": Rule(Role.REDUCTION, _scan, types_only=False),
    "unary_einsum": Rule(Role.REDUCTION, _unary_einsum),
    "select_and_scatter": Rule(Role.OPAQUE, _select_and_scatter, types_only=False),
    "scatter": Rule(Role.UPDATE, _scatter, types_only=False),
    "map": Rule(Role.ELEMENTWISE, _map, types_only=False),
}
