"""Kernels over many tensors: updates of optimizers, norms and scales.

The idea: PyTorch has the same kernels.  Lists of tensors come as the package's
``multi_tensor_applier`` passes them.

    multi_tensor_adam(65536, flag, [grads, params, averages, squares], 1e-3, 0.9, 0.95, ...)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flint.frontends.torch.programs.fused_updates import adam_update

_Lists = list[list[Tensor]]


def multi_tensor_adam(
    _chunk: int, _noop: Tensor, lists: _Lists, lr: float, beta1: float, beta2: float,
    epsilon: float, _step: int, mode: int, _corrected: int, weight_decay: float,
) -> None:  # fmt: skip
    """Adam's update of parameters; with master weights in a fifth list, of these."""
    gradients, parameters, first, second, *masters = lists
    updated = masters[0] if masters else parameters
    adam_update(
        bool(mode), [gradients, updated, first, second], lr=lr, beta1=beta1, beta2=beta2,
        eps=epsilon, weight_decay=weight_decay,
    )  # fmt: skip
    if masters:
        torch._foreach_copy_(parameters, updated)


def multi_tensor_l2norm(
    _chunk: int, _noop: Tensor, lists: _Lists, per_tensor: bool | None = None
) -> tuple[Tensor, Tensor]:
    """The norm of all tensors, and that of each where it is asked for."""
    each = torch._foreach_norm(lists[0])
    norms = torch.stack([item.float() for item in each])
    return norms.norm().view(1), norms if per_tensor else norms.new_empty(0)


def multi_tensor_scale(_chunk: int, _noop: Tensor, lists: _Lists, scale: Any) -> None:
    """Tensors times a number, into other tensors or the same."""
    source, target = lists
    scale = scale.view(()) if isinstance(scale, Tensor) else scale
    if all(a is b for a, b in zip(source, target, strict=True)):
        torch._foreach_mul_(target, scale)
    else:
        torch._foreach_copy_(target, torch._foreach_mul(source, scale))


def multi_tensor_unscale_l2norm(
    _chunk: int, _noop: Tensor, lists: _Lists, inverse: Tensor, per_tensor: bool | None = None
) -> tuple[Tensor, Tensor]:
    """The norm of unscaled tensors."""
    return multi_tensor_l2norm(_chunk, _noop, lists, per_tensor)


multi_tensor_scale_tensor = multi_tensor_scale
