"""Linear layers whose products are computed in FP8, forward and backward.

The idea: every operand gets a scale from its own largest element, is cast, and multiplied by
``torch._scaled_mm``, which takes one operand in rows and one in columns: an operand in another
layout is transposed by a copy.  Activations and weights are e4m3, gradients e5m2 (Micikevicius et
al., "FP8 Formats for Deep Learning", 2022; dynamic scales as torchao's ``Float8Linear``).

    narrow(model.layers)                # every nn.Linear in it, in place
    narrow(model.layers, delayed=True)  # by the largest elements of earlier steps

With delayed scaling, a scale is known before its tensor: it follows from the largest element of
the last ``HISTORY`` steps (Transformer Engine's ``DelayedScaling``).  After a step all ranks agree
on the largest elements of this one, by one all-reduce, and the histories move on (``move_on``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

_FORWARD, _GRADIENT = torch.float8_e4m3fn, torch.float8_e5m2
#: Types of what delayed scaling keeps histories of: activations, weights, gradients.
_KEPT = (_FORWARD, _FORWARD, _GRADIENT)
#: Steps in a history.
HISTORY = 16


def scaled(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """``x`` cast after a scale that makes its largest element that type's, and the factor that
    takes it back, a scalar of float32."""
    most = torch.finfo(dtype).max
    largest = x.abs().amax().float().clamp(min=1e-12)
    cast = (x.float() * (most / largest)).clamp(-most, most).to(dtype)
    return cast, largest / most


def _by_column(x: torch.Tensor) -> torch.Tensor:
    """The matrix with contiguous columns."""
    return x.t().contiguous().t()


def _product(
    left: tuple[torch.Tensor, torch.Tensor],
    right: tuple[torch.Tensor, torch.Tensor],
    dtype: torch.dtype,
) -> torch.Tensor:
    (a, of_a), (b, of_b) = left, right
    return torch._scaled_mm(a, b, scale_a=of_a, scale_b=of_b, out_dtype=dtype)


class _Narrow(torch.autograd.Function):
    """Rows (M, K) times a weight (N, K): (M, N)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        (a, of_a), (b, of_b) = scaled(x, _FORWARD), scaled(weight, _FORWARD)
        ctx.save_for_backward(a, of_a, b, of_b)
        return _product((a, of_a), (b.t(), of_b), x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, of_a, b, of_b = ctx.saved_tensors
        dtype = gradient.dtype
        g, of_g = scaled(gradient, _GRADIENT)
        of_x = _product((g, of_g), (_by_column(b), of_b), dtype)
        of_weight = _product((g.t().contiguous(), of_g), (_by_column(a), of_a), dtype)
        return of_x, of_weight


class NarrowLinear(nn.Linear):
    """``nn.Linear`` with products in FP8."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., K) -> (..., N)."""
        made = _Narrow.apply(x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])
        return made if self.bias is None else made + self.bias


def delayed(
    x: torch.Tensor, dtype: torch.dtype, scale: torch.Tensor, largest: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """``x`` cast after a scale of earlier steps, and the factor that takes it back.

    Args:
        x: any shape.
        dtype: of the result.
        scale: scalar of float32.
        largest: scalar of float32; becomes at least the largest element of ``x``.
    """
    most = torch.finfo(dtype).max
    torch.maximum(largest, x.abs().amax().float(), out=largest)
    return (x.float() * scale).clamp(-most, most).to(dtype), scale.reciprocal()


class _Delayed(torch.autograd.Function):
    """As ``_Narrow``, with scales (3,) and largest elements (3,) of x, weight and gradient."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor, now: torch.Tensor
    ) -> torch.Tensor:
        (a, of_a), (b, of_b) = (
            delayed(item, _KEPT[at], scales[at], now[at]) for at, item in enumerate((x, weight))
        )
        ctx.save_for_backward(a, of_a, b, of_b)
        ctx.scale, ctx.now = scales[2], now[2]
        return _product((a, of_a), (b.t(), of_b), x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        a, of_a, b, of_b = ctx.saved_tensors
        g = delayed(gradient, _GRADIENT, ctx.scale, ctx.now)
        of_x = _product(g, (_by_column(b), of_b), gradient.dtype)
        of_weight = _product((g[0].t().contiguous(), g[1]), (_by_column(a), of_a), gradient.dtype)
        return of_x, of_weight, None, None


class DelayedLinear(nn.Linear):
    """``nn.Linear`` with products in FP8 by scales of earlier steps.

    Attributes:
        history: largest elements of activations, weights and gradients, (3, HISTORY).
        now: those of this step, (3,).
        scales: that this step uses, (3,).
    """

    history: torch.Tensor
    now: torch.Tensor
    scales: torch.Tensor

    def begin(self) -> None:
        """Histories of nothing, scales of 1."""
        device = self.weight.device
        self.register_buffer("history", torch.zeros(3, HISTORY, device=device))
        self.register_buffer("now", torch.zeros(3, device=device))
        self.register_buffer("scales", torch.ones(3, device=device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., K) -> (..., N)."""
        made = _Delayed.apply(x.flatten(0, -2), self.weight, self.scales, self.now)
        made = made.unflatten(0, x.shape[:-1])
        return made if self.bias is None else made + self.bias


@torch.no_grad()
def move_on(modules: Iterable[nn.Module], group: dist.ProcessGroup | None = None) -> None:
    """After a step: add this step's largest elements over a group to the histories of all delayed
    layers.

    Args:
        modules: that may hold such layers.
        group: the ranks with the same parameters; None: this one alone.
    """
    found = [m for module in modules for m in module.modules() if isinstance(m, DelayedLinear)]
    if not found:
        return
    seen = torch.stack([layer.now for layer in found])  # (layers, 3)
    if group is not None:
        dist.all_reduce(seen, dist.ReduceOp.MAX, group)
    past = torch.stack([layer.history for layer in found]).roll(1, -1)
    past[..., 0] = seen
    most = torch.tensor([torch.finfo(dtype).max for dtype in _KEPT], device=past.device)
    largest = past.amax(-1)
    scales = torch.where(largest > 0, most / largest, 1.0)
    for layer, history, scale in zip(found, past, scales, strict=True):
        layer.history.copy_(history)
        layer.scales.copy_(scale)
        layer.now.zero_()


def narrow(module: nn.Module, delayed: bool = False) -> nn.Module:
    """Every ``nn.Linear`` inside of a module computes in FP8 from now on.

    Args:
        module: changed in place.
        delayed: by scales of earlier steps, which ``move_on`` makes after each step; else by its
            own.
    """
    for child in module.modules():
        if type(child) is nn.Linear:
            child.__class__ = DelayedLinear if delayed else NarrowLinear
            if isinstance(child, DelayedLinear):
                child.begin()
    return module
