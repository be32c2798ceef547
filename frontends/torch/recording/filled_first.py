"""Kernels whose result a GPU fills with zeros before they write all of it.

The idea: PyTorch makes the gradients of some losses with ``zeros_like`` and has their kernels write
into that (aten/src/ATen/native/Loss.cpp): one more kernel that writes the gradient.

    fill_first(torch.ops.aten.mse_loss_backward.default)    # aten.zeros_like, then .grad_input
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

_aten = torch.ops.aten

#: Op -> the one that writes into a given tensor, and the name of that argument.
_FILLED: Mapping[Any, tuple[Any, str]] = {
    _aten.mse_loss_backward.default: (_aten.mse_loss_backward.grad_input, "grad_input"),
    _aten.smooth_l1_loss_backward.default: (
        _aten.smooth_l1_loss_backward.grad_input, "grad_input",
    ),
    _aten.huber_loss_backward.default: (_aten.huber_loss_backward.out, "grad_input"),
}  # fmt: skip


def fill_first(op: Any) -> Callable[..., torch.Tensor] | None:
    """What such an op consists of, a function of its arguments; None for other ops."""
    into = _FILLED.get(op)
    return None if into is None else partial(_fill_first, *into)


def _fill_first(
    op: Any, name: str, grad: torch.Tensor, input: torch.Tensor, *args: Any
) -> torch.Tensor:
    filled = torch.zeros_like(input, memory_format=torch.contiguous_format)
    made: torch.Tensor = op(grad, input, *args, **{name: filled})
    return made
