"""Reductions and scans."""

from __future__ import annotations

import math

from tests.frontends.torch.lowering_cases.inputs import aten, half, index, mask, normal

CASES = {
    # name: (function, tensors)
    "sum": (aten.sum.default, [normal(3, 4)]),
    "sum of bools": (aten.sum.default, [mask(3, 4)]),
    "sum along": (lambda x: aten.sum.dim_IntList(x, [0, -1], True), [normal(3, 4, 5)]),
    "mean": (aten.mean.default, [normal(3, 4)]),
    "mean along bf16": (lambda x: aten.mean.dim(x, [-1], True), [half(3, 64)]),
    "prod": (lambda x: aten.prod.dim_int(x, 1), [normal(3, 4)]),
    "amax": (lambda x: aten.amax.default(x, [-1], True), [normal(3, 4)]),
    "amin": (lambda x: aten.amin.default(x, [0]), [normal(3, 4)]),
    "max": (aten.max.default, [normal(3, 4)]),
    "max along": (lambda x: aten.max.dim(x, 1), [normal(3, 4)]),
    "max other": (aten.max.other, [normal(3, 4), normal(4)]),
    "min of ints": (lambda x: aten.min.dim(x, 0, True), [index(9, 3, 4)]),
    "argmax": (lambda x: aten.argmax.default(x, -1), [normal(3, 4)]),
    "argmin of all": (aten.argmin.default, [normal(3, 4)]),
    "any": (aten.any.default, [mask(3, 4)]),
    "is all true": (aten._is_all_true.default, [mask(3, 4)]),
    "is any true": (aten._is_any_true.default, [mask(3, 4)]),
    "all along": (lambda x: aten.all.dim(x, 1), [mask(3, 4)]),
    **{
        f"norm {order}": (
            lambda x, order=order: aten.linalg_vector_norm.default(x, order, [1], True),
            [normal(3, 4)],
        )
        for order in (0, 1, 2, 3.0, math.inf, -math.inf)
    },
    "var": (lambda x: aten.var.correction(x, [1], correction=1), [normal(3, 4)]),
    "std of all": (lambda x: aten.std.correction(x, None, correction=0), [normal(3, 4)]),
    "var_mean": (lambda x: aten.var_mean.correction(x, [0], correction=0), [normal(3, 4)]),
    "logsumexp": (lambda x: aten.logsumexp.default(x, [1]), [normal(3, 4)]),
    "cumsum": (lambda x: aten.cumsum.default(x, 1), [normal(3, 7)]),
    "cumsum of ints": (lambda x: aten.cumsum.default(x, 0), [index(9, 7)]),
    "cumprod": (lambda x: aten.cumprod.default(x, 0), [normal(7)]),
    "nansum": (
        lambda x: aten.nansum.default(x, [1], True), [normal(3, 4).log()],
    ),
    "norm of all": (lambda x: aten.norm.Scalar(x, 3), [normal(3, 4)]),
    "norm along": (lambda x: aten.norm.ScalarOpt_dim(x, 2, [0], True), [normal(3, 4)]),
    "std_mean": (lambda x: aten.std_mean.correction(x, [1], correction=1), [normal(3, 4)]),
}  # fmt: skip
