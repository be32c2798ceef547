"""Batch norm over several ranks, in parts: own statistics, all ranks' statistics, the result.

Statistics are vectors [channels]; those of all ranks are rows, one per rank.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flint.frontends.torch.lowerings.calls import Call
from flint.frontends.torch.lowerings.normalisation import (
    beside_channels,
    centred,
    per_channel,
    scaled_and_moved,
    updated,
)
from flint.frontends.torch.lowerings.table import in_torch


@in_torch("aten.batch_norm_stats")
def _stats(call: Call, input: Tensor, eps: float) -> list[Tensor]:
    mean, _, variance = centred(input, beside_channels(input))
    return [mean.flatten(), torch.rsqrt(variance + eps).flatten()]


@in_torch("aten.batch_norm_gather_stats_with_counts")
def _gathered(
    call: Call, input: Tensor, mean: Tensor, invstd: Tensor, running_mean: Any, running_var: Any,
    momentum: float, eps: float, counts: Tensor,
) -> list[Tensor]:  # fmt: skip
    """The running statistics are the first targets where they are written."""
    weights = counts.to(mean.dtype).view(-1, 1).expand(mean.shape)
    total = weights.sum(0)
    whole = (weights * mean).sum(0) / total
    own = torch.reciprocal(invstd * invstd) - eps
    apart = mean - whole
    variance = (weights * (own + apart * apart)).sum(0) / total
    results = [whole, torch.rsqrt(variance + eps)]
    if len(call.targets) == len(results):
        return results
    unbiased = variance * total / (total - 1)
    return [*updated((running_mean, running_var), (whole, unbiased), momentum), *results]


@in_torch("aten.batch_norm_elemt")
def _normed(
    call: Call, input: Tensor, weight: Any, bias: Any, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    level, scale, *spread = (per_channel(item, input) for item in (mean, invstd, weight, bias))
    return scaled_and_moved((input - level) * scale, *spread)


@in_torch("aten.batch_norm_backward_reduce")
def _reduced(
    call: Call, grad: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Any,
    input_g: bool, weight_g: bool, bias_g: bool,
) -> list[Tensor]:  # fmt: skip
    dims = beside_channels(input)
    sums = grad.sum(dims)
    along = (grad * (input - per_channel(mean, input))).sum(dims)
    found = [sums, along, along * invstd, sums]
    wanted = [input_g, input_g, weight_g, bias_g]
    chosen = [a if each else sums.new_zeros(0) for a, each in zip(found, wanted, strict=True)]
    return chosen[: len(call.targets)]


@in_torch("aten.batch_norm_backward_elemt")
def _backward(
    call: Call, grad: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Any,
    sum_dy: Tensor, sum_dy_xmu: Tensor, count: Tensor,
) -> Tensor:  # fmt: skip
    total = count.to(sum_dy.dtype).sum()
    slope = invstd * invstd * sum_dy_xmu / total
    rest = grad - per_channel(sum_dy / total, input)
    rest = rest - (input - per_channel(mean, input)) * per_channel(slope, input)
    factor = invstd if weight is None else invstd * weight
    gradient: Tensor = rest * per_channel(factor, input)
    return gradient
