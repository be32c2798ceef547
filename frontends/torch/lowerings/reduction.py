"""Reductions over dims: sums, means, extremes, norms, variances, scans."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, axes, axis, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.pointwise import is_nan
from flint.frontends.torch.lowerings.table import in_torch, lowers
from flint.stablehlo.read.bindings import stablehlo as hlo


def _count(shape: tuple[int, ...], dims: list[int]) -> int:
    return math.prod(shape[dim] for dim in dims)


@lowers("aten.sum", "aten.mean")
def _total(call: Call, self: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
    dims = axes(dim, self.rank)
    value = value_at(self, self.shape, call.compute)
    value = op.reduce(value, dims)
    if call.base == "mean":
        value = op.divide(value, op.like(_count(self.shape, dims), value))
    return op.reshape(value, call.shape)


_REDUCTIONS = {
    "prod": "multiply", "amax": "maximum", "amin": "minimum", "all": "and", "any": "or",
    "_is_all_true": "and", "_is_any_true": "or",
}  # fmt: skip


@lowers(*(f"aten.{name}" for name in _REDUCTIONS))
def _reduction(call: Call, self: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
    kind = _REDUCTIONS[call.base]
    dtype = {"multiply": call.compute, "and": "bool", "or": "bool"}.get(kind, self.dtype)
    value = value_at(self, self.shape, dtype)
    return op.reshape(op.reduce(value, axes(dim, self.rank), kind), call.shape)


@lowers("aten.max", "aten.min")
def _maximum(call: Call, self: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """Of all elements, along a dim with the places, or (``other``) of two tensors."""
    kind = "maximum" if call.base == "max" else "minimum"
    if hasattr(dim, "spec"):
        function = op.maximum if kind == "maximum" else op.minimum
        return function(*(value_at(item, call.shape, call.dtype) for item in (self, dim)))
    if dim is None:
        return op.reshape(op.reduce(self.value, axes(None, self.rank), kind), call.shape)
    best, place = _with_place(self.value, axis(dim, self.rank), kind)
    return [op.reshape(item, call.shape) for item in (best, place)]


@lowers("aten.argmax", "aten.argmin")
def _place_of_extreme(
    call: Call, self: Any, dim: Any = None, keepdim: bool = False, **_: Any
) -> Value:
    value = self.value
    if dim is None:
        value = op.reshape(value, (math.prod(self.shape),))
    kind = "maximum" if call.base == "argmax" else "minimum"
    along = axis(dim or 0, len(op.shape_of(value)))
    return op.reshape(_with_place(value, along, kind)[1], call.shape)


def _with_place(value: Value, dim: int, kind: str) -> tuple[Value, Value]:
    """An extreme along a dim, and the first place where it is; NaN is the most extreme."""
    shape = op.shape_of(value)
    if not shape:
        return value, op.constant(0, (), "int64")
    best = op.reduce(value, [dim], kind)
    here = op.compare("EQ", value, op.keep(best, shape, [dim]))
    if dtypes.is_float(op.dtype_of(value)):
        here = op.or_(here, is_nan(value))
    place = op.iota(shape, dim)
    return best, op.reduce(op.select(here, place, op.like(shape[dim], place)), [dim], "minimum")


def norm(value: Value, order: Any, dims: list[int]) -> Value:
    """A vector norm over dims, of any order."""
    if order == 2:
        return op.sqrt(op.reduce(op.multiply(value, value), dims))
    size = hlo.abs(value)
    if order == 1:
        return op.reduce(size, dims)
    if order in (math.inf, -math.inf):
        return op.reduce(size, dims, "maximum" if order > 0 else "minimum")
    if order == 0:
        present = op.compare("NE", value, op.like(0, value))
        return op.reduce(op.convert(present, op.dtype_of(value)), dims)
    powered = op.reduce(op.power(size, op.like(order, size)), dims)
    return op.power(powered, op.like(1 / order, powered))


@lowers("aten.linalg_vector_norm")
def _vector_norm(
    call: Call, self: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, **_: Any
) -> Value:
    value = value_at(self, self.shape, call.compute)
    return op.reshape(norm(value, ord, axes(dim, self.rank)), call.shape)


@in_torch("aten.var", "aten.var_mean")
def _variance(call: Call, *args: Any, **kwargs: Any) -> list[Tensor]:
    given = call.arguments(args, kwargs)
    x: Tensor = given["self"]
    dims = axes(given.get("dim"), x.dim())
    correction = given.get("correction", int(given.get("unbiased", True)))
    free = _count(tuple(x.shape), dims) - (1 if correction is None else correction)
    mean = x.mean(dims, keepdim=True)
    rest = x - mean
    found = [(rest * rest).sum(dims) / max(free, 0), mean]
    return [item.view(call.shape) for item in found[: len(call.targets)]]


@lowers("aten.logsumexp")
def _logsumexp(call: Call, self: Any, dim: Any, keepdim: bool = False, **_: Any) -> Value:
    dims = axes(dim, self.rank)
    value = value_at(self, self.shape, call.compute)
    best = op.reduce(value, dims, "maximum")
    finite = op.select(hlo.is_finite(best), best, op.like(0, best))
    shifted = op.exponential(op.subtract(value, op.keep(finite, self.shape, dims)))
    return op.reshape(op.add(op.log(op.reduce(shifted, dims)), finite), call.shape)


@lowers("aten.cumsum", "aten.cumprod")
def _running(call: Call, self: Any, dim: int, **_: Any) -> Value:
    value = value_at(self, self.shape, call.dtype)
    if not self.shape or not self.spec.elements:
        return value
    kind = "add" if call.base == "cumsum" else "multiply"
    compute = op.convert(value, dtypes.compute_dtype(call.dtype))
    return scanned(compute, axis(dim, self.rank), kind)


def scanned(value: Value, along: int, kind: str = "add") -> Value:
    """A running sum or product along a dim, in log2(n) steps.

    Each step combines what lies twice as far apart (Hillis and Steele, "Data parallel algorithms",
    Communications of the ACM 29, 1986).
    """
    size = op.shape_of(value)[along]
    combine, neutral = (op.add, 0) if kind == "add" else (op.multiply, 1)
    distance = 1
    while distance < size:
        low = [distance if at == along else 0 for at in range(len(op.shape_of(value)))]
        before = op.slice_dim(value, along, 0, size - distance)
        value = combine(value, op.pad(before, low, [0] * len(low), neutral))
        distance *= 2
    return value


def window(
    value: Value, size: list[int], stride: list[int], padding: list[tuple[int, int]], kind: str,
    dilation: list[int] | None = None,
) -> Value:  # fmt: skip
    """Reduction over sliding windows, padded with the reduction's neutral element."""
    import numpy as np

    dtype = op.dtype_of(value)
    dilation = dilation or [1] * len(size)
    shape = [
        (own + low + high - (reach - 1) * step - 1) // pitch + 1
        for own, (low, high), reach, step, pitch in zip(
            op.shape_of(value), padding, size, dilation, stride, strict=True
        )
    ]
    made = hlo.ReduceWindowOp(
        [op.tensor(shape, dtype)],
        [value],
        [op.initial(kind, dtype)],
        op.integers(size),
        window_strides=op.integers(stride),
        window_dilations=op.integers(dilation),
        padding=np.array(padding, np.int64),
    )
    op.body_of(made.regions[0], [dtype], kind)
    return made.results[0]
