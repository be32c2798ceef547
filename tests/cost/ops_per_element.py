"""Ops that have a number of operations per element, each once, on shapes that make it plain."""

from __future__ import annotations

import torch

aten = torch.ops.aten


def setup(mesh):
    return (torch.zeros(1024, 512, device="cuda"), torch.zeros(64, 32, 16, 16, device="cuda"))


def step(y, x):
    w, m = torch.ones(512, device="cuda"), torch.zeros(1024, 1, device="cuda")
    c, all_three = torch.ones(32, device="cuda"), [True, True, True]
    aten.native_layer_norm(y, [512], w, w, 1e-5)
    aten.native_layer_norm_backward(y, y, [512], m, m, w, w, all_three)
    aten.native_batch_norm(x, c, c, c, c, True, 0.1, 1e-5)
    aten.native_batch_norm_backward(x, x, c, c, c, c, c, True, 1e-5, all_three)
    aten._fused_rms_norm(y, [512], w, 1e-5)
    aten._softmax(y, -1, False)
    aten._softmax_backward_data(y, y, -1, torch.float32)
    aten._log_softmax(y, -1, False)
    aten._log_softmax_backward_data(y, y, -1, torch.float32)
    aten.silu(y)
    aten.silu_backward(y, y)
    aten.gelu(y)
    aten.gelu_backward(y, y)
    aten.threshold_backward(y, y, 0)
    aten.native_dropout(y, 0.1, True)
    aten._foreach_addcdiv_([y], [y], [y], [1.0])
    aten._foreach_addcmul_([y], [y], [y], [1.0])
    aten._foreach_lerp_([y], [y], 0.5)
    count = torch.zeros((), device="cuda")
    aten._fused_adamw_(
        [y], [y.clone()], [y.clone()], [y.clone()], [], [count], lr=1e-3, beta1=0.9,
        beta2=0.99, weight_decay=0.1, eps=1e-8, amsgrad=False, maximize=False,
    )  # fmt: skip
    aten._fused_sgd_(
        [y], [y.clone()], [y.clone()], weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.0,
        nesterov=False, maximize=False, is_first_step=False,
    )  # fmt: skip
    return y
