"""Ops on lists of tensors and fused optimizers."""

from __future__ import annotations

import torch
import torch.distributed.fsdp  # its ops

from tests.frontends.torch.lowering_cases.inputs import aten, normal, positive


def fused_adamw(p, g, m, v, step):
    aten._fused_adamw_.default(
        [p], [g], [m], [v], [], [step], lr=1e-2, beta1=0.9, beta2=0.99, weight_decay=0.1,
        eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip
    return [p, m, v]


def fused_adam(p, g, m, v, step):
    aten._fused_adam_.default(
        [p], [g], [m], [v], [], [step], lr=1e-2, beta1=0.9, beta2=0.99, weight_decay=0.1,
        eps=1e-8, amsgrad=False, maximize=True,
    )  # fmt: skip
    return [p, m, v]


def fused_amsgrad(p, g, m, v, largest, step):
    aten._fused_adamw_.default(
        [p], [g], [m], [v], [largest], [step], lr=1e-2, beta1=0.9, beta2=0.99, weight_decay=0.1,
        eps=1e-8, amsgrad=True, maximize=False,
    )  # fmt: skip
    return [p, m, v, largest]


def fused_adagrad(p, g, total, step, scale=None, found=None):
    aten._fused_adagrad_.default(
        [p], [g], [total], [step], lr=1e-2, lr_decay=0.1, weight_decay=0.1, eps=1e-8,
        maximize=True, grad_scale=scale, found_inf=found,
    )  # fmt: skip
    return [p, total]


def scaled_adamw(p, g, m, v, step, lr, scale, found):
    aten._fused_adamw_.tensor_lr(
        [p], [g], [m], [v], [], [step], lr=lr, beta1=0.9, beta2=0.99, weight_decay=0.1,
        eps=1e-8, amsgrad=False, maximize=False, grad_scale=scale, found_inf=found,
    )  # fmt: skip
    return [p, g, m, v]


def scaled_sgd(p, g, m, lr, scale, found):
    aten._fused_sgd_.tensor_lr(
        [p], [g], [m], weight_decay=0.1, momentum=0.9, lr=lr, dampening=0.0, nesterov=True,
        maximize=False, is_first_step=False, grad_scale=scale, found_inf=found,
    )  # fmt: skip
    return [p, g, m]


def fused_sgd(p, g, m):
    aten._fused_sgd_.default(
        [p], [g], [m], weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.0, nesterov=True,
        maximize=False, is_first_step=False,
    )  # fmt: skip
    return [p, m]


def fsdp_chunk_cat(x, y):
    out = torch.zeros(2, 6)
    torch.ops.fsdp.chunk_cat.default([x, y], 0, 2, out=out)
    return [out]


def fsdp_split(x):
    out = [torch.zeros(2, 3), torch.zeros(2, 1)]
    torch.ops.fsdp.split_with_sizes_copy.default(x, [3, 1], 1, out=out)
    return out


def fsdp_copy(x, y):
    torch.ops.fsdp.copy_.default(x, y)
    return [x]


def fsdp_copy_in(x, y):
    """This rank's part of the buffer; the others' is not there."""
    return [torch.ops.fsdp.all_gather_copy_in.default([x, y], torch.zeros(8), [3, 1], 4, 1)[0]]


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
SHALLOW_PAIRS = [item.tanh() for item in PAIRS]
UNARY = {
    "abs": PAIRS, "acos": SHALLOW_PAIRS, "ceil": PAIRS, "cos": PAIRS, "erf": PAIRS, "exp": PAIRS,
    "expm1": PAIRS, "floor": PAIRS, "log": POSITIVE_PAIRS, "log1p": POSITIVE_PAIRS,
    "log2": POSITIVE_PAIRS, "max": PAIRS, "reciprocal": POSITIVE_PAIRS, "round": PAIRS,
    "rsqrt": POSITIVE_PAIRS, "sigmoid": PAIRS, "sign": PAIRS, "sin": PAIRS, "tan": SHALLOW_PAIRS,
    "tanh": PAIRS, "trunc": PAIRS,
}  # fmt: skip
BINARY = ("sub", "maximum", "minimum", "clamp_max", "clamp_min", "pow")

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
    **{
        f"{name} scaled {label}": (
            function,
            [*tensors, torch.tensor(0.01), torch.tensor(8.0), torch.tensor(found)],
        )
        for label, found in (("finite", 0.0), ("infinite", 1.0))
        for name, function, tensors in (
            ("_fused_adamw_", scaled_adamw,
             [normal(4), normal(4), normal(4), positive(4), torch.tensor(3.0)]),
            ("_fused_sgd_", scaled_sgd, [normal(4), normal(4), normal(4)]),
        )
    },
    "_fused_sgd_": (fused_sgd, [normal(4), normal(4), normal(4)]),
    **{
        f"_foreach_{name}": (foreach(getattr(aten, f"_foreach_{name}").default), tensors)
        for name, tensors in UNARY.items()
    },
    **{
        f"_foreach_{name} of lists": (
            foreach(getattr(aten, f"_foreach_{name}").List, LIST), POSITIVE_PAIRS,
        )
        for name in BINARY
    },
    "_foreach_clamp_min_ scalars": (
        foreach(aten._foreach_clamp_min_.ScalarList, [0.1, -0.1]), PAIRS,
    ),
    "_fused_adam_": (
        fused_adam, [normal(4), normal(4), normal(4), positive(4), torch.tensor(3.0)],
    ),
    "_fused_adamw_ amsgrad": (
        fused_amsgrad,
        [normal(4), normal(4), normal(4), positive(4), positive(4), torch.tensor(3.0)],
    ),
    "_fused_adagrad_": (
        fused_adagrad, [normal(4), normal(4), positive(4), torch.tensor(3.0)],
    ),
    # FSDP2's own.
    "chunk_cat": (fsdp_chunk_cat, [normal(3, 2), normal(2, 2)]),
    "fsdp split_with_sizes_copy": (fsdp_split, [normal(2, 4)]),
    "fsdp copy_": (fsdp_copy, [normal(4), normal(4)]),
    "all_gather_copy_in": (fsdp_copy_in, [normal(3), normal(1)]),
}  # fmt: skip
