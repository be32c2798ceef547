"""Activations and their derivatives, by the formulas in torch's documentation of each.

Only those that PyTorch's kernels compute differently from its decompositions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flint.frontends.torch.lowerings.calls import Call
from flint.frontends.torch.lowerings.table import in_torch


@in_torch("aten.softplus")
def _softplus(call: Call, x: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    scaled = x * beta
    return torch.where(scaled > threshold, x, torch.log1p(scaled.exp()) / beta)


@in_torch("aten.softplus_backward")
def _softplus_backward(call: Call, grad: Tensor, x: Tensor, beta: Any, threshold: Any) -> Tensor:
    scaled = x * beta
    return torch.where(scaled > threshold, grad, grad * scaled.sigmoid())


@in_torch("aten.log_sigmoid_forward")
def _log_sigmoid(call: Call, x: Tensor) -> list[Tensor]:
    """min(0, x) - log(1 + exp(-|x|)); kernels of CPUs keep the exponential, GPUs' nothing."""
    small = (-x.abs()).exp()
    kept = small if call.targets[1].shape == call.shape else x.new_zeros(0)
    return [x.clamp(max=0) - torch.log1p(small), kept]


@in_torch("aten.log_sigmoid_backward")
def _log_sigmoid_backward(call: Call, grad: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    return grad * (-x).sigmoid()


@in_torch("aten.mish")
def _mish(call: Call, x: Tensor) -> Tensor:
    return x * torch.log1p(x.exp()).tanh()


@in_torch("aten.threshold_backward")
def _threshold_backward(call: Call, grad: Tensor, x: Tensor, threshold: Any) -> Tensor:
    return grad.masked_fill(x <= threshold, 0)
