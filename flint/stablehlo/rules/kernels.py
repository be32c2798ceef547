"""Ops that are separate kernels: sort, FFT, linear algebra, random numbers, batch norm.

The idea: formulas of ``flint.cost.op_work`` are applied to types.  Bytes are those of the boundary,
except for Cholesky (half of operand and result) and the triangular solve (half of the matrix), as
in XLA.

Batch norm has no FLOPs in XLA's cost analysis (left open there).  Here they are counted from the
definitions in the StableHLO specification, with N elements and F features; values that depend only
on the feature are computed once per feature, and values that are used twice are computed once:

    inference   4 N (centre, scale, divide, shift) + F (variance + epsilon), F square roots
    training    N (mean: N - F sums, F quotients) + 3 N (variance: centre, square, mean) + inference
    grad        13 N: centre, normalise, i1, i2, i3 (2), i4, i5, i6 (2), grad_operand,
                grad_scale (2) in the specification's names; sums of F less and vectors of F cancel
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from flint.cost.op_work import fft_flops, sort_flops, top_k_flops
from flint.errors import FlintError
from flint.graph.tensor_types import TensorType
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.stablehlo.read.records import Op
from flint.stablehlo.rules.bytes import boundary, total_bytes
from flint.stablehlo.rules.rule import Rule


def _vector(flops: int, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    item = WorkItem(Unit.VECTOR, ins[0].dtype, flops)
    return Work((item,) if flops else (), total_bytes(ins), total_bytes(outs))


def sort(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """N ceil(log2 N) comparisons of the first operand's N elements."""
    return _vector(sort_flops(prod(ins[0].shape)), ins, outs)


def top_k(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """A selection; k is the last dim of the results."""
    shape = outs[0].shape
    return _vector(top_k_flops(prod(ins[0].shape), shape[-1] if shape else 1), ins, outs)


def _fft(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    return _vector(fft_flops(prod(ins[0].shape), tuple(op.attr("fft_length", ()))), ins, outs)


def _matrix(op: Op, tensor: TensorType) -> int:
    if len(tensor.shape) < 2:
        raise FlintError(f"{op.name}: {tensor} is not a matrix")
    return tensor.shape[-1]


def _cholesky(op: Op, ins: Sequence[TensorType], _outs: Sequence[TensorType]) -> Work:
    """n^3 / 3 per matrix; one triangle is read and one written."""
    n = _matrix(op, ins[0])
    half = ins[0].bytes // 2
    item = WorkItem(Unit.VECTOR, ins[0].dtype, n * prod(ins[0].shape) // 3)
    return Work((item,), half, ins[0].bytes - half)


def _triangular_solve(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """2 n per element of the right-hand sides; one triangle of the matrix is read."""
    n = _matrix(op, ins[0])
    item = WorkItem(Unit.VECTOR, ins[0].dtype, 2 * n * prod(ins[1].shape))
    return Work((item,), ins[0].bytes // 2 + ins[1].bytes, outs[0].bytes)


def _random(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """One transcendental per element drawn (the new generator state included), as in XLA."""
    drawn = sum(prod(out.shape) for out in outs)
    item = WorkItem(Unit.TRANSCENDENTAL, outs[-1].dtype, drawn)
    return Work((item,), total_bytes(ins), total_bytes(outs))


def _rng(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """As ``_random``; the shape operand is read on the host."""
    item = WorkItem(Unit.TRANSCENDENTAL, outs[0].dtype, prod(outs[0].shape))
    return Work((item,), total_bytes(ins[:2]), total_bytes(outs))


def _batch_norm(per_element: int, per_feature: int) -> Rule:
    def work(_op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
        elements, features = prod(ins[0].shape), prod(ins[1].shape)
        dtype = ins[0].dtype
        items = (
            WorkItem(Unit.VECTOR, dtype, per_element * elements + per_feature * features),
            WorkItem(Unit.TRANSCENDENTAL, dtype, features),
        )
        return Work(items, total_bytes(ins), total_bytes(outs))

    return Rule(Role.OPAQUE, work)


RULES: dict[str, Rule] = {
    "sort": Rule(Role.OPAQUE, sort),
    "chlo.top_k": Rule(Role.OPAQUE, top_k),
    "mhlo.topk": Rule(Role.OPAQUE, top_k),
    "fft": Rule(Role.OPAQUE, _fft, types_only=False),
    "cholesky": Rule(Role.OPAQUE, _cholesky),
    "triangular_solve": Rule(Role.OPAQUE, _triangular_solve),
    "rng": Rule(Role.OPAQUE, _rng),
    "rng_bit_generator": Rule(Role.OPAQUE, _random),
    "mhlo.xla.rng_get_and_update_state": Rule(Role.OPAQUE, boundary),
    "batch_norm_inference": _batch_norm(4, 1),
    "batch_norm_training": _batch_norm(8, 1),
    "batch_norm_grad": _batch_norm(13, 0),
}
