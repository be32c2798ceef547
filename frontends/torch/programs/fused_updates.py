"""Updates of optimizers in one kernel, for packages whose own kernels are not compiled here.

adam_update(True, [gradients, parameters, averages, squares], lr=1e-3, beta1=0.9, beta2=0.99, ...)
"""

from __future__ import annotations

import functools
from typing import Any

import torch


@functools.cache
def _step_of(device: torch.device) -> torch.Tensor:
    """A step's number: it is read, and its value does not matter."""
    return torch.ones((), device=device)


def adam_update(decoupled: bool, lists: list[list[torch.Tensor]], **numbers: float) -> None:
    """PyTorch's fused update.

    Args:
        decoupled: weights decay apart from the gradient, as AdamW's.
        lists: gradients, parameters, averages of gradients and of their squares.
        numbers: lr, beta1, beta2, eps, weight_decay.
    """
    gradients, parameters, *averages = lists
    steps = [_step_of(parameters[0].device)] * len(parameters)
    update: Any = torch._fused_adamw_ if decoupled else torch._fused_adam_
    update(parameters, gradients, *averages, [], steps, amsgrad=False, maximize=False, **numbers)
