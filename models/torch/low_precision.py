"""Linear layers whose products are computed in FP8, forward and backward.

The idea: every operand gets a scale from its own largest element, is cast, and multiplied by
``torch._scaled_mm``, whose operands lie row by row and column by column: what does not lie so is
transposed by a copy.  Activations and weights are e4m3, gradients e5m2 (Micikevicius et al., "FP8
Formats for Deep Learning", 2022; dynamic scales as torchao's ``Float8Linear``).

    narrow(model.layers)        # every nn.Linear in it, in place
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_FORWARD, _GRADIENT = torch.float8_e4m3fn, torch.float8_e5m2


def scaled(x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """``x`` cast after a scale that makes its largest element that type's, and the factor that
    takes it back, a scalar of float32."""
    most = torch.finfo(dtype).max
    largest = x.abs().amax().float().clamp(min=1e-12)
    cast = (x.float() * (most / largest)).clamp(-most, most).to(dtype)
    return cast, largest / most


def _by_column(x: torch.Tensor) -> torch.Tensor:
    """A matrix whose columns lie in one piece."""
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


def narrow(module: nn.Module) -> nn.Module:
    """Every ``nn.Linear`` inside of a module computes in FP8 from now on."""
    for child in module.modules():
        if type(child) is nn.Linear:
            child.__class__ = NarrowLinear
    return module
