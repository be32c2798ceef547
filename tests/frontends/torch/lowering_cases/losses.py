"""Losses, forward and backward."""

from __future__ import annotations

import torch

from tests.frontends.torch.lowering_cases.inputs import aten, index, normal, positive


def nll(reduction):
    def run(x, target, w=None):
        out, total = aten.nll_loss_forward.default(x, target, w, reduction, 2)
        grad = torch.ones_like(out)
        back = aten.nll_loss_backward.default(grad, x, target, w, reduction, 2, total)
        return [out, back]

    return run


def nll2d(x, target, reduction):
    out, total = aten.nll_loss2d_forward.default(x, target, None, reduction, -100)
    grad = torch.ones_like(out)
    return [
        out, aten.nll_loss2d_backward.default(grad, x, target, None, reduction, -100, total)
    ]  # fmt: skip


CASES = {
    # name: (function, tensors)
    **{
        f"nll_loss reduction={reduction}": (nll(reduction), [normal(5, 4), index(4, 5)])
        for reduction in (0, 1, 2)
    },
    "nll_loss with weights": (nll(1), [normal(5, 4), torch.tensor([0, 2, 1, 3, 1]), positive(4)]),
    "nll_loss of what is ignored": (
        nll(1), [normal(5, 4), torch.full((5,), 2), positive(4)],
    ),
    **{
        f"nll_loss2d reduction={reduction}": (
            lambda x, t, reduction=reduction: nll2d(x, t, reduction),
            [normal(2, 4, 3, 5), index(4, 2, 3, 5)],
        )
        for reduction in (0, 1, 2)
    },
    "mse_loss": (aten.mse_loss.default, [normal(3, 4), normal(3, 4)]),
    "mse_loss_backward": (
        lambda g, x, y: aten.mse_loss_backward.default(g, x, y, 1),
        [normal(), normal(3, 4), normal(3, 4)],
    ),
    "bce with logits": (
        aten.binary_cross_entropy_with_logits.default, [normal(3, 4), positive(3, 4)],
    ),
}  # fmt: skip
