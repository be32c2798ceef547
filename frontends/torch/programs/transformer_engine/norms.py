"""Layer norms of the extension: forward and backward kernels.

The idea: PyTorch has the same kernels, with the same saved statistics.  A norm whose result goes
into FP8 is one kernel where the scale is known beforehand, else two.

    out, mean, rsigma = layernorm_fwd(x, weight, bias, 1e-5, None, None, DType.kBFloat16, 0, False)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flint.frontends.torch.programs.transformer_engine import quantizing
from flint.frontends.torch.programs.transformer_engine.kernels import kernel

_Norm = tuple[Any, Tensor | None, Tensor]


def layernorm_fwd(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, out: Any, quantizer: Any, out_dtype: Any,
    sm_margin: int, zero_centered_gamma: bool,
) -> _Norm:  # fmt: skip
    """The norm of rows [rows, size], their means and inverse deviations [rows]."""
    made, mean, rsigma = _layernorm(x, weight, bias, eps, zero_centered_gamma)
    return quantizing.given_out(made, quantizer, out), mean, rsigma


def rmsnorm_fwd(
    x: Tensor, weight: Tensor, eps: float, out: Any, quantizer: Any, out_dtype: Any,
    sm_margin: int, zero_centered_gamma: bool,
) -> _Norm:  # fmt: skip
    """The same without the mean."""
    made, rsigma = _rmsnorm(x, weight, eps, zero_centered_gamma)
    return quantizing.given_out(made, quantizer, out), None, rsigma


def layernorm_bwd(
    dz: Tensor, x: Tensor, mean: Tensor, rsigma: Tensor, weight: Tensor, sm_margin: int,
    zero_centered_gamma: bool,
) -> Any:  # fmt: skip
    """Gradients of rows, weight and bias."""
    return _layernorm_grad(dz.reshape(x.shape), x, mean, rsigma, weight, zero_centered_gamma)


def rmsnorm_bwd(
    dz: Tensor, x: Tensor, rsigma: Tensor, weight: Tensor, sm_margin: int,
    zero_centered_gamma: bool,
) -> Any:  # fmt: skip
    """Gradients of rows and weight."""
    return _rmsnorm_grad(dz.reshape(x.shape), x, rsigma, weight, zero_centered_gamma)


def rmsnorm_bwd_add(
    dz: Tensor, x: Tensor, add: Tensor, rsigma: Tensor, weight: Tensor, sm_margin: int,
    zero_centered_gamma: bool,
) -> Any:  # fmt: skip
    """The same, added to a gradient."""
    shape = x.shape
    return _rmsnorm_grad_add(
        dz.reshape(shape), x, add.reshape(shape), rsigma, weight, zero_centered_gamma
    )


@kernel
def _layernorm(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, centered: bool
) -> tuple[Tensor, Tensor, Tensor]:
    wide = x.float()
    mean = wide.mean(-1)
    apart = wide - mean.unsqueeze(-1)
    rsigma = torch.rsqrt((apart * apart).mean(-1) + eps)
    scale = weight.float() + 1 if centered else weight.float()
    return (apart * rsigma.unsqueeze(-1) * scale + bias.float()).to(x.dtype), mean, rsigma


@kernel
def _rmsnorm(x: Tensor, weight: Tensor, eps: float, centered: bool) -> tuple[Tensor, Tensor]:
    wide = x.float()
    rsigma = torch.rsqrt((wide * wide).mean(-1) + eps)
    scale = weight.float() + 1 if centered else weight.float()
    return (wide * rsigma.unsqueeze(-1) * scale).to(x.dtype), rsigma


@kernel
def _layernorm_grad(
    dz: Tensor, x: Tensor, mean: Tensor, rsigma: Tensor, weight: Tensor, centered: bool
) -> tuple[Tensor, Tensor, Tensor]:
    normal = (x.float() - mean.unsqueeze(-1)) * rsigma.unsqueeze(-1)
    scale = weight.float() + 1 if centered else weight.float()
    scaled = dz.float() * scale
    along = (scaled * normal).mean(-1, keepdim=True)
    dx = (scaled - normal * along - scaled.mean(-1, keepdim=True)) * rsigma.unsqueeze(-1)
    dims = list(range(dz.dim() - 1))
    dgamma, dbeta = (dz.float() * normal).sum(dims), dz.float().sum(dims)
    return dx.to(x.dtype), dgamma.to(weight.dtype), dbeta.to(weight.dtype)


def _of_rms(dz: Tensor, x: Tensor, rsigma: Tensor, weight: Tensor, centered: bool) -> Any:
    normal = x.float() * rsigma.unsqueeze(-1)
    scale = weight.float() + 1 if centered else weight.float()
    scaled = dz.float() * scale
    along = (scaled * normal).mean(-1, keepdim=True)
    dx = (scaled - normal * along) * rsigma.unsqueeze(-1)
    dgamma = (dz.float() * normal).sum(list(range(dz.dim() - 1)))
    return dx, dgamma.to(weight.dtype)


@kernel
def _rmsnorm_grad(
    dz: Tensor, x: Tensor, rsigma: Tensor, weight: Tensor, centered: bool
) -> tuple[Tensor, Tensor]:
    dx, dgamma = _of_rms(dz, x, rsigma, weight, centered)
    return dx.to(x.dtype), dgamma


@kernel
def _rmsnorm_grad_add(
    dz: Tensor, x: Tensor, add: Tensor, rsigma: Tensor, weight: Tensor, centered: bool
) -> tuple[Tensor, Tensor]:
    dx, dgamma = _of_rms(dz, x, rsigma, weight, centered)
    return (dx + add.float()).to(x.dtype), dgamma
