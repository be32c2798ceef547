"""Work of LAPACK's routines behind ``custom_call``, and of ops that solve triangular systems in the
same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from flint.cost import op_work
from flint.graph.work import WorkItem
from flint.stablehlo.read.records import Op
from flint.stablehlo.rules.library_calls import ItemRule, Types, config_of, vector_item


def _flag(op: Op, names: Sequence[str], default: bool) -> bool:
    """Whether a LAPACK job flag (a letter, its ASCII code, a bool) requests vectors: not "N"."""
    config = config_of(op)
    for name in names:
        if name in config:
            value = config[name]
            return value not in ("N", "n", ord("N"), ord("n"), False, 0, None)
    return default


def _matrix_rule(flops: Callable[[Op, int, int, Types], int]) -> ItemRule:
    """FLOPs per matrix of the batch; complex arithmetic is 4 times the real count (a complex
    product is 6 and a sum 2 real FLOPs, where the real ones are 1 and 1)."""

    def items(op: Op, ins: Types, _outs: Types) -> tuple[WorkItem, ...] | None:
        if not ins or len(ins[0].shape) < 2:
            return None
        *batch, m, n = ins[0].shape
        weight = 4 if ins[0].dtype.startswith("complex") else 1
        return vector_item(ins, weight * prod(batch) * flops(op, m, n, ins))

    return items


def triangular_items(_op: Op, ins: Types, _outs: Types) -> tuple[WorkItem, ...] | None:
    """xTRSM: the first two operands that are matrices are the triangle and the right-hand sides."""
    matrices = [tensor for tensor in ins if len(tensor.shape) >= 2]
    if len(matrices) < 2:
        return None
    weight = 4 if matrices[0].dtype.startswith("complex") else 1
    flops = op_work.triangular_flops(matrices[0].shape[-1], matrices[1].elements)
    return vector_item(matrices, weight * flops)


def tridiagonal_items(_op: Op, ins: Types, outs: Types) -> tuple[WorkItem, ...] | None:
    """xGTSV: the value of highest rank holds the right-hand sides, [..., n, columns]."""
    right = max((*ins, *outs), key=lambda tensor: len(tensor.shape), default=None)
    if right is None or len(right.shape) < 2:
        return None
    *batch, n, columns = right.shape
    weight = 4 if right.dtype.startswith("complex") else 1
    flops = prod(batch) * op_work.tridiagonal_solve_flops(n, columns)
    return vector_item([right], weight * flops)


#: LAPACK family (without type letter) -> its FLOPs.
LAPACK: dict[str, ItemRule] = {
    "potrf": _matrix_rule(lambda op, m, n, ins: op_work.cholesky_flops(n)),
    "getrf": _matrix_rule(lambda op, m, n, ins: op_work.lu_flops(m, n)),
    "geqrf": _matrix_rule(lambda op, m, n, ins: op_work.qr_flops(m, n)),
    "geqp3": _matrix_rule(lambda op, m, n, ins: op_work.qr_flops(m, n)),
    "orgqr": _matrix_rule(
        lambda op, m, n, ins: op_work.q_from_reflectors_flops(
            m, n, ins[1].shape[-1] if len(ins) > 1 and ins[1].shape else n
        )
    ),
    "ormqr": _matrix_rule(lambda op, m, n, ins: 4 * m * n * min(m, n)),
    "syevd": _matrix_rule(
        lambda op, m, n, ins: op_work.symmetric_eigen_flops(n, _flag(op, ("mode", "jobz"), True))
    ),
    "gesdd": _matrix_rule(
        lambda op, m, n, ins: op_work.svd_flops(
            m, n, _flag(op, ("mode", "jobz", "compute_uv"), True)
        )
    ),
    "geev": _matrix_rule(
        lambda op, m, n, ins: op_work.eigen_flops(
            n, _flag(op, ("compute_left",), True) or _flag(op, ("compute_right",), True)
        )
    ),
    "gees": _matrix_rule(lambda op, m, n, ins: op_work.eigen_flops(n, _flag(op, ("mode",), True))),
    "gehrd": _matrix_rule(lambda op, m, n, ins: op_work.hessenberg_flops(n)),
    "sytrd": _matrix_rule(lambda op, m, n, ins: op_work.tridiagonal_flops(n)),
    "syrk": _matrix_rule(lambda op, m, n, ins: m * m * n),
    "trsyl": _matrix_rule(
        lambda op, m, n, ins: op_work.sylvester_flops(m, ins[1].shape[-1] if len(ins) > 1 else n)
    ),
    # LAWN 41, xTRTRI.
    "trtri": _matrix_rule(lambda op, m, n, ins: (n**3 + 2 * n) // 3),
    "trsm": triangular_items,
    "gtsv": tridiagonal_items,
}
#: Other spellings of the same routine.
for _name, _same in (
    ("ungqr", "orgqr"), ("unmqr", "ormqr"), ("heevd", "syevd"), ("syevj", "syevd"),
    ("gesvd", "gesdd"), ("gesvdj", "gesdd"), ("gesvdp", "gesdd"), ("hetrd", "sytrd"),
    ("gtsv2", "gtsv"),
):  # fmt: skip
    LAPACK[_name] = LAPACK[_same]
