"""Matrix products: the result in torch's dtype, accumulated in float32 for the half types."""

from __future__ import annotations

from typing import Any

import torch

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import in_torch, lowers
from flint.stablehlo.read.bindings import chlo


def _scaled(value: Value, factor: Any) -> Value:
    return value if factor == 1 else op.multiply(value, op.like(factor, value))


def _with_bias(call: Call, bias: Any, product: Value, beta: Any, alpha: Any) -> Value:
    if beta == 0:
        return _scaled(product, alpha)
    added = value_at(bias, call.shape, op.dtype_of(product))
    return op.add(_scaled(added, beta), _scaled(product, alpha))


def _product(left: Any, right: Any) -> Value:
    """Of vectors, matrices or rows of matrices: the last dim on the left with the next to last."""
    batch = [0] if left.rank == 3 else []
    dtype = dtypes.compute_dtype(left.dtype)
    dims = [left.rank - 1], [len(batch)]
    return op.dot(left.value, right.value, dims, (batch, batch), dtype)


@lowers("aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.vdot")
def _plain(call: Call, self: Any, other: Any, *_: Any, **__: Any) -> Value:
    return _product(self, other)


@lowers("aten.addmm", "aten.baddbmm", "aten.addmv")
def _added(
    call: Call, self: Any, left: Any, right: Any, *_: Any, beta: Any = 1, alpha: Any = 1, **__: Any
) -> Value:
    return _with_bias(call, self, _product(left, right), beta, alpha)


@lowers("aten.addbmm")
def _summed(
    call: Call, self: Any, left: Any, right: Any, *, beta: Any = 1, alpha: Any = 1
) -> Value:
    """The products of a batch, summed: one contraction of the batch and the columns."""
    dtype = dtypes.compute_dtype(left.dtype)
    product = op.dot(left.value, right.value, ([0, 2], [0, 1]), dtype=dtype)
    return _with_bias(call, self, product, beta, alpha)


@in_torch("aten._trilinear")
def _trilinear(
    _: Call, first: torch.Tensor, second: torch.Tensor, third: torch.Tensor, *places: Any
) -> torch.Tensor:
    """Three tensors brought to the same dims, multiplied and summed over some (``nn.Bilinear``):
    over those that the third lacks before it is multiplied."""
    *expanded, summed = places[:4]
    parts = []
    for item, dims in zip((first, second, third), expanded, strict=True):
        for dim in dims:
            item = item.unsqueeze(dim)
        parts.append(item)
    first, second, third = parts
    early = [dim for dim in summed if third.shape[dim] == 1]
    late = [dim for dim in summed if dim not in early]
    found = first * second
    found = found.sum(early, keepdim=True) if early else found
    found = found * third
    found = found.sum(late, keepdim=True) if late else found
    for dim in sorted(summed, reverse=True):
        found = found.squeeze(dim)
    return found


@lowers("aten._scaled_mm")
def _scaled_mm(
    call: Call, self: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any = None,
    scale_result: Any = None, out_dtype: Any = None, use_fast_accum: Any = False,
) -> Value:  # fmt: skip
    """A product of narrow floats, times a scale per tensor, or per row and per column."""
    rows, columns = (self.shape[0], 1), (1, mat2.shape[1])
    for scale, whole in ((scale_a, rows), (scale_b, columns)):
        if scale.spec.elements != 1 and scale.shape != whole:
            raise Unsupported("aten._scaled_mm with a scale per block")
    made = op.dot(self.value, mat2.value, ([1], [0]), dtype="float32")
    for scale in (scale_a, scale_b):
        flat = op.reshape(scale.value, (1, 1)) if scale.spec.elements == 1 else scale.value
        made = op.multiply(made, value_at(flat, call.shape, "float32"))
    return made if bias is None else op.add(made, value_at(bias, call.shape, "float32"))


@lowers("aten._grouped_mm")
def _grouped_mm(
    call: Call, self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Value:
    """Products of row groups: rows up to ``offs[g]`` of ``self`` [m, k] times ``mat2`` [g, k, n].

    Or, of two matrices, [m, k] and [k, n], one product per group of k.  The groups' sizes are data:
    a ragged product, whose FLOPs are those of one dense product of all rows.
    """
    if bias is not None:
        raise Unsupported("aten._grouped_mm with a bias")
    if offs is None:
        return _product(self, mat2)
    sizes = _sizes(offs.value)
    if self.rank == 2 and mat2.rank == 3:
        numbers = chlo.RaggedDotDimensionNumbers.get([], [], [1], [1], [0], [0])
    elif self.rank == 2 and mat2.rank == 2:
        numbers = chlo.RaggedDotDimensionNumbers.get([], [], [1], [0], [1], [])
    else:
        raise Unsupported(f"aten._grouped_mm of ranks {self.rank} and {mat2.rank}")
    return chlo.ragged_dot(
        op.tensor(call.shape, dtypes.compute_dtype(self.dtype)), self.value, mat2.value, sizes,
        numbers,
    )  # fmt: skip


def _sizes(offsets: Value) -> Value:
    """Group sizes [g] from where the groups end [g]."""
    count = op.shape_of(offsets)[0]
    before = op.slice_dim(op.pad(offsets, [1], [0]), 0, 0, count)
    return op.subtract(offsets, before)
