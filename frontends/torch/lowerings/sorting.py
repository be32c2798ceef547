"""Sorting, the largest k, and counting."""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, axis
from flint.frontends.torch.lowerings.indexing import chosen
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.pointwise import is_nan
from flint.frontends.torch.lowerings.reduction import scanned
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import chlo, ir
from flint.stablehlo.read.bindings import stablehlo as hlo


def sorted_along(value: Value, along: int, descending: bool) -> tuple[Value, Value]:
    """Values in order along a dim, stable, and where they were; NaN is the largest."""
    shape, dtype = op.shape_of(value), op.dtype_of(value)
    if not shape:
        return value, op.constant(0, (), "int64")
    place = op.iota(shape, along)
    made = hlo.SortOp([value.type, place.type], [value, place], dimension=along, is_stable=True)
    kinds = [op.tensor((), dtype)] * 2 + [op.tensor((), "int64")] * 2
    block = made.regions[0].blocks.append(*kinds)
    with ir.InsertionPoint(block):
        low, high = block.arguments[0], block.arguments[1]
        if descending:
            low, high = high, low
        before = op.compare("LT", low, high)
        if dtypes.is_float(dtype):
            before = op.or_(before, op.and_(is_nan(high), op.not_(is_nan(low))))
        hlo.return_([before])
    return made.results[0], made.results[1]


@lowers("aten.sort", "aten.sort.stable")
def _sort(
    call: Call, self: Any, dim: Any = -1, descending: bool = False, *, stable: Any = None, **_: Any
) -> list[Value]:
    return list(sorted_along(self.value, axis(dim, self.rank), descending))


@lowers("aten.topk")
def _topk(
    call: Call, self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True,
    **_: Any,
) -> list[Value]:  # fmt: skip
    along = axis(dim, self.rank)
    if largest and self.shape and along == self.rank - 1:
        values, places = chlo.top_k(self.value, k)
        return [values, op.convert(places, "int64")]
    both = sorted_along(self.value, along, largest)
    if not self.shape:
        return list(both)
    return [op.slice_dim(item, along, 0, k) for item in both]


@lowers("aten.bincount")
def _bincount(call: Call, self: Any, weights: Any = None, minlength: int = 0) -> Value:
    """How often each value occurs; the recording says how many there are."""
    count, bins = self.spec.elements, call.shape[0]
    ones = op.constant(1, (count,), call.dtype) if weights is None else weights.value
    index = op.reshape(op.convert(self.value, "int64"), (count, 1))
    return op.scatter(op.constant(0, (bins,), call.dtype), index, ones, "add")


@lowers("aten.histc")
def _histc(call: Call, self: Any, bins: int = 100, min: Any = 0, max: Any = 0, **_: Any) -> Value:
    """Counts of equal intervals; what lies outside is not counted."""
    if min == max:
        raise Unsupported(f"{call.name} with bounds that depend on data")
    dtype = "float32" if not dtypes.is_float(self.dtype) else dtypes.compute_dtype(self.dtype)
    count = self.spec.elements
    value = op.reshape(op.convert(self.value, dtype), (count,))
    from_min = op.subtract(value, op.like(min, value))
    place = hlo.floor(op.multiply(from_min, op.like(bins / (max - min), value)))
    place = op.minimum(place, op.like(bins - 1, place))
    low = op.compare("GE", value, op.like(min, value))
    high = op.compare("LE", value, op.like(max, value))
    ones = op.convert(op.and_(low, high), "float32")
    index = op.reshape(op.convert(op.maximum(place, op.like(0, place)), "int64"), (count, 1))
    return op.scatter(op.constant(0, (bins,), "float32"), index, ones, "add")


@lowers("aten.searchsorted", "aten.bucketize")
def _searchsorted(
    call: Call, sorted_sequence: Any, self: Any, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Any = None,
) -> Value:  # fmt: skip
    """How many entries of a sorted vector lie before each value."""
    if sorter is not None:
        raise Unsupported(f"{call.name} with a sorter")
    right = right or side == "right"
    edges, values = sorted_sequence, self
    if call.base == "bucketize":
        edges, values = self, sorted_sequence
    if edges.rank != 1 or not hasattr(values, "spec"):
        raise Unsupported(f"{call.name} of several sequences")
    count, size = values.spec.elements, edges.shape[0]
    dtype = dtypes.promote(edges.dtype, values.dtype)
    left = op.broadcast(op.convert(edges.value, dtype), (count, size), [1])
    flat = op.reshape(op.convert(values.value, dtype), (count,))
    before = op.compare("LE" if right else "LT", left, op.broadcast(flat, (count, size), [0]))
    return op.reshape(op.reduce(op.convert(before, "int64"), [1]), call.shape)


@lowers("aten._unique2")
def _distinct(call: Call, self: Any, *_: Any, **__: Any) -> list[Value]:
    """In order, as GPUs give them even if they need not be sorted."""
    ordered, place = sorted_along(op.reshape(self.value, (self.spec.elements,)), 0, False)
    return _groups(call, ordered, place)


@lowers("aten.unique_consecutive")
def _distinct_from_the_last(
    call: Call, self: Any, *_: Any, dim: int | None = None, **__: Any
) -> list[Value]:
    if dim is not None:
        raise Unsupported(f"{call.name} of slices")
    flat = op.reshape(self.value, (self.spec.elements,))
    return _groups(call, flat, op.iota((self.spec.elements,), 0))


def _groups(call: Call, ordered: Value, place: Value) -> list[Value]:
    """One of each run of equal items, the run of each item, and how many are in each.

    The recording says how many runs there are, and which of the last two are asked for.

    Args:
        call: of which they are the results.
        ordered: the items [n].
        place: where each was before [n].
    """
    (length,), (count,) = op.shape_of(ordered), call.shape
    if not length:
        return [op.constant(0, spec.shape, spec.dtype) for spec in call.targets]
    differ = op.compare(
        "NE", op.slice_dim(ordered, 0, 1, length), op.slice_dim(ordered, 0, 0, length - 1)
    )
    begins = op.concatenate([op.constant(True, (1,), "bool"), differ], 0)
    run = scanned(op.convert(begins, "int64"), 0)
    run = op.reshape(op.subtract(run, op.like(1, run)), (length, 1))
    results = [op.gather(ordered, chosen(begins, count), [0])]
    for spec, of_items in zip(call.targets[1:], (True, False), strict=True):
        empty = op.constant(0, (spec.elements,), "int64")
        if spec.elements and of_items:
            index = op.reshape(place, (length, 1))
            empty = op.scatter(empty, index, op.reshape(run, (length,)), unique=True)
        elif spec.elements:
            empty = op.scatter(empty, run, op.constant(1, (length,), "int64"), "add")
        results.append(op.reshape(empty, spec.shape))
    return results
