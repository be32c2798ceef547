"""Attention in which a query sees only keys near its own, by PyTorch's flash-attention kernel.

The idea: of PyTorch's dense kernels this one alone has a window, and a causal mask that ends at the
last key, as FlashAttention's does since 2.1: fewer queries than keys are the last ones.  Tensors
are [batch, length, heads, size]; a window (before, behind) counts the positions that a query sees
on either side, -1 all of them.  FLOPs are those of the pairs that see each other
(``flint.cost.attention_work``).

    out, level, seed = windowed_forward(q, k, v, 0.0, None, True, (1023, 0))
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

#: No window.
EVERYWHERE = (-1, -1)
Window = tuple[int, int]


def limits(causal: bool, window: Window, queries: int = 0, keys: int = 0) -> bool:
    """Whether a window hides more than a causal mask, or this ends elsewhere than it begins."""
    before, behind = window
    return before >= 0 or (behind > 0 and not causal) or (causal and queries != keys)


def windowed_forward(
    q: Tensor, k: Tensor, v: Tensor, dropout: float, scale: float | None, causal: bool,
    window: Window,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Attention, its log-sum-exps [batch, heads, length], and the state of random numbers."""
    kernel: Any = torch.ops.aten._flash_attention_forward
    out, level, seed, *_ = kernel(
        q, k, v, None, None, q.shape[1], k.shape[1], dropout, causal, False, scale=scale,
        **_sides(causal, window),
    )  # fmt: skip
    return out, level, seed


def windowed_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, level: Tensor, dropout: float,
    scale: float | None, causal: bool, window: Window, seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of queries, keys and values; arguments as of the forward pass and its results."""
    kernel: Any = torch.ops.aten._flash_attention_backward
    dq, dk, dv = kernel(
        grad, q, k, v, out, level, None, None, q.shape[1], k.shape[1], dropout, causal, seed,
        seed.new_empty(()), scale=scale, **_sides(causal, window),
    )  # fmt: skip
    return dq, dk, dv


def _sides(causal: bool, window: Window) -> dict[str, int]:
    before, behind = window
    return {"window_size_left": before, "window_size_right": 0 if causal else behind}
