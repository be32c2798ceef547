"""Matrix products: the result in torch's dtype, accumulated in float32 for the half types."""

from __future__ import annotations

from typing import Any

from flint.frontends.torch.lowerings import dtypes
from flint.frontends.torch.lowerings import operations as op
from flint.frontends.torch.lowerings.calls import Call, Unsupported, value_at
from flint.frontends.torch.lowerings.operations import Value
from flint.frontends.torch.lowerings.table import lowers
from flint.stablehlo.read.bindings import chlo


def _scaled(value: Value, factor: Any) -> Value:
    return value if factor == 1 else op.multiply(value, op.like(factor, value))


def _with_bias(call: Call, bias: Any, product: Value, beta: Any, alpha: Any) -> Value:
    if beta == 0:
        return _scaled(product, alpha)
    added = value_at(bias, call.shape, op.dtype_of(product))
    return op.add(_scaled(added, beta), _scaled(product, alpha))


def _accumulated(dtype: str) -> str:
    return dtypes.compute_dtype(dtype)


@lowers("aten.mm")
def _mm(call: Call, self: Any, mat2: Any, *_: Any, **__: Any) -> Value:
    return op.dot(self.value, mat2.value, ([1], [0]), dtype=_accumulated(self.dtype))


@lowers("aten.bmm")
def _bmm(call: Call, self: Any, mat2: Any, *_: Any, **__: Any) -> Value:
    return op.dot(self.value, mat2.value, ([2], [1]), ([0], [0]), dtype=_accumulated(self.dtype))


@lowers("aten.addmm")
def _addmm(
    call: Call, self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1, **_: Any
) -> Value:
    product = op.dot(mat1.value, mat2.value, ([1], [0]), dtype=_accumulated(mat1.dtype))
    return _with_bias(call, self, product, beta, alpha)


@lowers("aten.baddbmm")
def _baddbmm(
    call: Call, self: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1, **_: Any
) -> Value:
    product = op.dot(
        batch1.value, batch2.value, ([2], [1]), ([0], [0]), dtype=_accumulated(batch1.dtype)
    )
    return _with_bias(call, self, product, beta, alpha)


@lowers("aten.mv")
def _mv(call: Call, self: Any, vec: Any, **_: Any) -> Value:
    return op.dot(self.value, vec.value, ([1], [0]), dtype=_accumulated(self.dtype))


@lowers("aten.addmv")
def _addmv(
    call: Call, self: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1, **_: Any
) -> Value:
    product = op.dot(mat.value, vec.value, ([1], [0]), dtype=_accumulated(mat.dtype))
    return _with_bias(call, self, product, beta, alpha)


@lowers("aten.dot", "aten.vdot")
def _dot(call: Call, self: Any, tensor: Any, **_: Any) -> Value:
    return op.dot(self.value, tensor.value, ([0], [0]), dtype=_accumulated(self.dtype))


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
        return op.dot(
            self.value, mat2.value, ([2], [1]), ([0], [0]), dtype=_accumulated(self.dtype)
        )
    sizes = _sizes(offs.value)
    if self.rank == 2 and mat2.rank == 3:
        numbers = chlo.RaggedDotDimensionNumbers.get([], [], [1], [1], [0], [0])
    elif self.rank == 2 and mat2.rank == 2:
        numbers = chlo.RaggedDotDimensionNumbers.get([], [], [1], [0], [1], [])
    else:
        raise Unsupported(f"aten._grouped_mm of ranks {self.rank} and {mat2.rank}")
    return chlo.ragged_dot(
        op.tensor(call.shape, _accumulated(self.dtype)),
        self.value,
        mat2.value,
        sizes,
        numbers,
    )


def _sizes(offsets: Value) -> Value:
    """Group sizes [g] from where the groups end [g]."""
    count = op.shape_of(offsets)[0]
    before = op.slice_dim(op.pad(offsets, [1], [0]), 0, 0, count)
    return op.subtract(offsets, before)
