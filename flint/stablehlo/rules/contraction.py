"""Contractions: dots, einsum, ragged dots and convolutions, in FLOPs and as a GEMM's dims.

The idea: every contraction is a GEMM of (batch, m, n, k), 2 FLOPs per multiply-add, on the matrix
unit, in the dtype of the left operand (also where the right one's differs: a weight of another type
is converted on the way).  A complex multiply-add counts as one, as in XLA; its dtype shows that.

A convolution's dims: groups = feature groups x batch groups and

    batch = groups                             n = output features / groups
    m = output batch x output spatial size     k = input features per group x kernel spatial size

so ``2 * batch * m * n * k`` is its FLOPs when every window position meets an input element.  FLOPs
themselves count only those that do (padding and dilation cost nothing), as XLA does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from flint.cost.op_work import block_scaled, gemm_flops, valid_positions
from flint.errors import FlintError
from flint.graph.tensor_types import EXACT, TensorType
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.stablehlo.read.records import Op
from flint.stablehlo.rules.bytes import total_bytes
from flint.stablehlo.rules.rule import Rule


def _free(shape: Sequence[int], taken: Collection[int]) -> int:
    size = 1
    for dim, extent in enumerate(shape):
        if dim not in taken:
            size *= extent
    return size


def _of(shape: Sequence[int], dims: Sequence[int], op: Op) -> int:
    size = 1
    for dim in dims:
        if not 0 <= dim < len(shape):
            raise FlintError(f"{op.name}: an operand of rank {len(shape)} has no dim {dim}")
        size *= shape[dim]
    return size


def gemm(
    dims: tuple[int, int, int, int], ins: Sequence[TensorType], outs: Sequence[TensorType],
    *, exact: bool = False,
) -> Work:  # fmt: skip
    """The work of one GEMM that reads all operands and writes all results.

    Args:
        dims: (batch, m, n, k).
        ins, outs: types of operands and results.
        exact: products of f32 may not run in TF32.
    """
    dtype = EXACT if exact and ins[0].dtype == "f32" else ins[0].dtype
    item = WorkItem(Unit.MATMUL, dtype, gemm_flops(dims), dims)
    return Work((item,), total_bytes(ins), total_bytes(outs))


def dot_general(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """m and n: the operands' free dims; k: contracting; batch: batching dims."""
    lhs, rhs = ins[0].shape, ins[1].shape
    lhs_batching = op.attr("lhs_batching", ())
    lhs_contracting = op.attr("lhs_contracting", ())
    rhs_taken = (*op.attr("rhs_batching", ()), *op.attr("rhs_contracting", ()))
    k = _of(lhs, lhs_contracting, op)
    if k != _of(rhs, op.attr("rhs_contracting", ()), op):
        raise FlintError(f"{op.name}: contracting dims of {ins[0]} and {ins[1]} differ in size")
    batch = _of(lhs, lhs_batching, op)
    m = _free(lhs, (*lhs_batching, *lhs_contracting))
    return gemm((batch, m, _free(rhs, rhs_taken), k), ins, outs, exact=op.attr("exact", False))


def _scaled_dot(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """HLO's scaled-dot: a dot of narrow operands with block scales.

    The scales come after both operands, or each after its own: a scale is shorter along the
    contraction, which distinguishes the right operand from the left one's scale.
    """
    k = _of(ins[0].shape, op.attr("lhs_contracting", ()), op)
    follows = _of(ins[1].shape, op.attr("rhs_contracting", ()), op) == k
    work = dot_general(op, (ins[0], ins[1] if follows else ins[2]), outs)
    items = tuple(item._replace(dtype=block_scaled(item.dtype)) for item in work.items)
    return work._replace(items=items, read=total_bytes(ins))


def _dot(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """Last dim of the left with the first of the right: vectors and matrices."""
    lhs, rhs = ins[0].shape, ins[1].shape
    if not lhs or not rhs or lhs[-1] != rhs[0]:
        raise FlintError(f"{op.name}: {ins[0]} and {ins[1]} do not contract")
    return gemm((1, prod(lhs[:-1]), prod(rhs[1:]), lhs[-1]), ins, outs)


def _einsum(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """Indices in both operands and the result are batch, in both operands only k, else m or n.

    An index of one operand alone that the result lacks is summed on the way: it stays in m or n.

    Raises:
        FlintError: a config with an ellipsis or other than two operands.
    """
    config = str(op.attr("config", "")).replace(" ", "")
    operands, arrow, result = config.partition("->")
    left, comma, right = operands.partition(",")
    if not arrow or not comma or "." in config:
        raise FlintError(
            f'einsum "{config}" has no plain two-operand form: write it as dot_general'
        )
    if len(left) != len(ins[0].shape) or len(right) != len(ins[1].shape):
        raise FlintError(f'einsum "{config}" does not fit {ins[0]} and {ins[1]}')
    sizes = dict(zip(left + right, ins[0].shape + ins[1].shape, strict=True))
    both = set(left) & set(right)
    batch = prod(sizes[index] for index in both if index in result)
    k = prod(sizes[index] for index in both if index not in result)
    m = prod(sizes[index] for index in set(left) - both)
    n = prod(sizes[index] for index in set(right) - both)
    return gemm((batch, m, n, k), ins, outs)


def ragged_dot(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    """Each row of the left operand meets only the right matrix of its own group.

    In all three modes (ragged rows, ragged contraction, ragged batch) the multiply-adds are the
    left operand's elements times n, the right operand's free dims without the group dim, because
    group sizes sum to the ragged dim.  Without attributes the dims are in the order [batch, m, k] x
    [group, batch, k, n].
    """
    lhs, rhs = ins[0].shape, ins[1].shape
    groups = max(0, len(rhs) - len(lhs))
    rank = max(0, len(lhs) - 2)
    lhs_batching = op.attr("lhs_batching", tuple(range(rank)))
    lhs_contracting = op.attr("lhs_contracting", (len(lhs) - 1,))
    rhs_taken = (
        *op.attr("rhs_batching", tuple(range(groups, groups + rank))),
        *op.attr("rhs_contracting", (len(rhs) - 2,)),
        *op.attr("rhs_group", tuple(range(groups))),
    )
    m = _free(lhs, (*lhs_batching, *lhs_contracting))
    batch, k = _of(lhs, lhs_batching, op), _of(lhs, lhs_contracting, op)
    work = gemm((batch, m, _free(rhs, rhs_taken), k), ins, outs)
    matrices = prod(rhs[dim] for dim in op.attr("rhs_group", tuple(range(groups))))
    if m >= matrices or not matrices:
        return work
    unread = ins[1].bytes // matrices * (matrices - m)  # no more matrices are read than rows
    return work._replace(read=work.read - unread)


def convolution_item(op: Op, lhs: TensorType, rhs: TensorType, out: TensorType) -> WorkItem:
    """The FLOPs and dims of a convolution of ``lhs`` with the kernel ``rhs`` into ``out``.

    Args:
        op: holds the dimension numbers and the window (see ``records.py``).

    Raises:
        FlintError: dimension numbers that do not fit the shapes.
    """
    spatial = op.attr("input_spatial", ())
    rank = len(spatial)
    ones = (1,) * rank
    strides = op.attr("strides") or ones
    lhs_dilation = op.attr("lhs_dilation") or ones
    rhs_dilation = op.attr("rhs_dilation") or ones
    padding = op.attr("padding") or ((0, 0),) * rank
    kernel_spatial, output_spatial = op.attr("kernel_spatial", ()), op.attr("output_spatial", ())
    try:
        positions = 1
        for i in range(rank):
            positions *= valid_positions(
                lhs.shape[spatial[i]],
                rhs.shape[kernel_spatial[i]],
                out.shape[output_spatial[i]],
                strides[i],
                padding[i][0],
                lhs_dilation[i],
                rhs_dilation[i],
            )
        groups = op.attr("feature_group_count", 1) * op.attr("batch_group_count", 1)
        features = out.shape[op.attrs["output_feature"]]  # type: ignore[index]  # None: see below
        per_group = rhs.shape[op.attrs["kernel_input_feature"]]  # type: ignore[index]
        out_batch = out.shape[op.attrs["output_batch"]]  # type: ignore[index]
        kernel = prod(rhs.shape[dim] for dim in kernel_spatial)
        pixels = prod(out.shape[dim] for dim in output_spatial)
        dims = (groups, out_batch * pixels, features // groups, per_group * kernel)
    except (IndexError, KeyError, TypeError, ZeroDivisionError) as error:
        raise FlintError(
            f"{op.name}: dimension numbers do not fit {lhs} with {rhs} into {out}"
        ) from error
    flops = 2 * per_group * features * out_batch * positions
    return WorkItem(Unit.MATMUL, lhs.dtype, flops, dims)


def _convolution(op: Op, ins: Sequence[TensorType], outs: Sequence[TensorType]) -> Work:
    item = convolution_item(op, ins[0], ins[1], outs[0])
    return Work((item,), total_bytes(ins), total_bytes(outs))


RULES: dict[str, Rule] = {
    "dot_general": Rule(Role.CONTRACTION, dot_general, types_only=False),
    "mhlo.scaled_dot": Rule(Role.CONTRACTION, _scaled_dot, types_only=False),
    "dot": Rule(Role.CONTRACTION, _dot),
    "einsum": Rule(Role.CONTRACTION, _einsum, types_only=False),
    "convolution": Rule(Role.CONTRACTION, _convolution, types_only=False),
    "dynamic_conv": Rule(Role.CONTRACTION, _convolution, types_only=False),
    "chlo.ragged_dot": Rule(Role.CONTRACTION, ragged_dot, types_only=False),
    "mhlo.ragged_dot": Rule(Role.CONTRACTION, ragged_dot, types_only=False),
}
