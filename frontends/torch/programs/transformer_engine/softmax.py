"""Scaled and masked softmax of scores [batch, heads, queries, keys], one kernel each way.

scaled_upper_triang_masked_softmax_forward(scores, 0.125)
"""

from __future__ import annotations

import torch
from torch import Tensor

from flint.frontends.torch.programs.transformer_engine.kernels import kernel


@kernel
def _scaled_softmax(x: Tensor, scale: float) -> Tensor:
    return torch.softmax(x.float() * scale, -1).to(x.dtype)


@kernel
def _masked_softmax(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    return torch.softmax(torch.where(mask != 0, -10000.0, x.float() * scale), -1).to(x.dtype)


@kernel
def _softmax_grad(grad: Tensor, y: Tensor, scale: float) -> Tensor:
    product = grad.float() * y.float()
    return (scale * (product - y.float() * product.sum(-1, keepdim=True))).to(y.dtype)


def scaled_softmax_forward(x: Tensor, scale: float) -> Tensor:
    """Softmax of scaled scores."""
    return _scaled_softmax(x, float(scale))


def scaled_masked_softmax_forward(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The same where a mask is false."""
    return _masked_softmax(x, mask, float(scale))


def scaled_softmax_backward(grad: Tensor, y: Tensor, scale: float) -> Tensor:
    """The gradient of scores."""
    return _softmax_grad(grad, y, float(scale))


scaled_upper_triang_masked_softmax_forward = scaled_softmax_forward
scaled_aligned_causal_masked_softmax_forward = scaled_softmax_forward
scaled_masked_softmax_backward = scaled_softmax_backward
scaled_upper_triang_masked_softmax_backward = scaled_softmax_backward
scaled_aligned_causal_masked_softmax_backward = scaled_softmax_backward
