"""Ops on lists of tensors and fused optimizers."""

from __future__ import annotations

import torch

from tests.torch.lowering_cases.inputs import aten, normal, positive


def fused_adamw(p, g, m, v, step):
    aten._fused_adamw_.default(
        [p], [g], [m], [v], [], [step], lr=1e-2, beta1=0.9, beta2=0.99, weight_decay=0.1,
        eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip
    return [p, m, v]


def fused_sgd(p, g, m):
    aten._fused_sgd_.default(
        [p], [g], [m], weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.0, nesterov=True,
        maximize=False, is_first_step=False,
    )  # fmt: skip
    return [p, m]


def foreach(op, *rest, **kwargs):
    """A foreach op on lists made of every other tensor and those between."""

    def run(*tensors):
        first, second = list(tensors[::2]), list(tensors[1::2])
        arguments = [second if item is LIST else item for item in rest]
        return list(op(first, *arguments, **kwargs) or first)

    return run


LIST = object()
PAIRS = [normal(3, 4), normal(3, 4), normal(5), normal(5)]
POSITIVE_PAIRS = [item.abs() + 0.5 for item in PAIRS]

CASES = {
    # name: (function, tensors)
    "_foreach_add": (foreach(aten._foreach_add.List, LIST, alpha=2), PAIRS),
    "_foreach_add_ scalar": (foreach(aten._foreach_add_.Scalar, 2.0), PAIRS),
    "_foreach_mul_ scalar list": (foreach(aten._foreach_mul_.ScalarList, [2.0, 3.0]), PAIRS),
    "_foreach_mul tensor": (lambda x, y, s: aten._foreach_mul.Tensor([x, y], s),
                            [normal(3), normal(2), normal()]),
    "_foreach_div_": (foreach(aten._foreach_div_.List, LIST), POSITIVE_PAIRS),
    "_foreach_lerp_": (foreach(aten._foreach_lerp_.Scalar, LIST, 0.1), PAIRS),
    "_foreach_addcmul_": (foreach(aten._foreach_addcmul_.Scalar, LIST, LIST, 0.3), PAIRS),
    "_foreach_addcdiv_": (
        foreach(aten._foreach_addcdiv_.ScalarList, LIST, LIST, [0.3, 2.0]), POSITIVE_PAIRS,
    ),
    "_foreach_addcdiv_ tensor": (
        lambda x, y, a, b: (aten._foreach_addcdiv_.Tensor(
            [x, y], [a, b], [a, b], torch.tensor([0.5, 2.0])), [x, y])[1],
        [normal(3), normal(2), positive(3), positive(2)],
    ),
    "_foreach_sqrt": (foreach(aten._foreach_sqrt.default), POSITIVE_PAIRS),
    "_foreach_neg_": (foreach(aten._foreach_neg_.default), PAIRS),
    "_foreach_pow": (
        lambda x, y: aten._foreach_pow.ScalarAndTensor(0.9, [x, y]), [normal(), normal()],
    ),
    "_foreach_norm": (foreach(aten._foreach_norm.Scalar), PAIRS),
    "_foreach_copy_": (foreach(aten._foreach_copy_.default, LIST), PAIRS),
    "_foreach_zero_": (foreach(aten._foreach_zero_.default), PAIRS),
    "_fused_adamw_": (
        fused_adamw, [normal(4), normal(4), normal(4), positive(4), torch.tensor(3.0)],
    ),
    "_fused_sgd_": (fused_sgd, [normal(4), normal(4), normal(4)]),
}  # fmt: skip
