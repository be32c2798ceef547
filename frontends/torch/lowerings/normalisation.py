"""Normalisations, forward and backward: centred, divided by the standard deviation, scaled.

The idea: the norms differ in the dims of their statistics and in the dims of weight and bias; the
common parts are here once, also for batch norm over several ranks (``synchronised.py``).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flint.frontends.torch.lowerings.calls import Call, Unsupported
from flint.frontends.torch.lowerings.table import in_torch


def centred(x: Tensor, dims: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """The mean over dims, which stay, the centred values, and the variance."""
    mean = x.mean(dims, keepdim=True)
    rest = x - mean
    return mean, rest, (rest * rest).mean(dims, keepdim=True)


def updated(
    running: tuple[Tensor, Tensor], new: tuple[Tensor, Tensor], momentum: float
) -> list[Tensor]:
    """Running mean and variance, moved by the momentum towards the new ones."""
    pairs = zip(running, new, strict=True)
    return [old * (1 - momentum) + value * momentum for old, value in pairs]


def _input_gradient(weighted: Tensor, normal: Tensor, scale: Tensor, dims: list[int]) -> Tensor:
    """The gradient of a norm's input, without its parts along mean and variance.

    Args:
        weighted: the gradient of the normal values.
        normal: centred, divided by the standard deviation.
        scale: one over the standard deviation.
        dims: of the statistics.
    """
    along = (weighted * normal).mean(dims, keepdim=True)
    level = weighted.mean(dims, keepdim=True)
    return (weighted - level - normal * along) * scale


def scaled_and_moved(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Times weight, plus bias, where there are any."""
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _dims(input: Tensor, normalized_shape: Any) -> tuple[list[int], list[int]]:
    """The last dims, over which is normalised, and those before them."""
    first = input.dim() - len(normalized_shape)
    return list(range(first, input.dim())), list(range(first))


def _summed(x: Tensor, dims: list[int]) -> Tensor:
    return x.sum(dims) if dims else x


@in_torch("aten._fused_rms_norm_backward")
def _rms_norm_backward(
    call: Call, grad: Tensor, input: Tensor, normalized_shape: Any, rstd: Tensor,
    weight: Tensor | None, output_mask: Any,
) -> list[Tensor]:  # fmt: skip
    dims, outer = _dims(input, normalized_shape)
    normal = input * rstd
    weighted = grad if weight is None else grad * weight
    results = []
    if output_mask[0]:
        mean = (weighted * normal).mean(dims, keepdim=True)
        results.append((weighted - normal * mean) * rstd)
    if output_mask[1] and weight is not None:
        results.append(_summed(grad * normal, outer))
    return results


@in_torch("aten.native_layer_norm")
def _layer_norm(
    call: Call, input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None,
    eps: float,
) -> list[Tensor]:  # fmt: skip
    mean, rest, variance = centred(input, _dims(input, normalized_shape)[0])
    scale = torch.rsqrt(variance + eps)
    return [scaled_and_moved(rest * scale, weight, bias), mean, scale]


@in_torch("aten.native_layer_norm_backward")
def _layer_norm_backward(
    call: Call, grad: Tensor, input: Tensor, normalized_shape: Any, mean: Tensor, rstd: Tensor,
    weight: Tensor | None, bias: Tensor | None, output_mask: Any,
) -> list[Tensor]:  # fmt: skip
    dims, outer = _dims(input, normalized_shape)
    normal = (input - mean) * rstd
    weighted = grad if weight is None else grad * weight
    results = []
    if output_mask[0]:
        results.append(_input_gradient(weighted, normal, rstd, dims))
    if output_mask[1] and weight is not None:
        results.append(_summed(grad * normal, outer))
    if output_mask[2] and bias is not None:
        results.append(_summed(grad, outer))
    return results


def beside_channels(input: Tensor) -> list[int]:
    """The dims of a batch norm's statistics: all but that of the channels."""
    return [dim for dim in range(input.dim()) if dim != 1]


def per_channel(item: Any, input: Tensor) -> Any:
    """A vector [channels] that lies along an input's channels; None stays."""
    return None if item is None else item.view([-1, *[1] * (input.dim() - 2)])


@in_torch(
    "aten.native_batch_norm", "aten._native_batch_norm_legit",
    "aten._batch_norm_with_update", "aten._native_batch_norm_legit_no_training",
)  # fmt: skip
def _batch_norm(
    call: Call, input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Any,
    running_var: Any, *rest: Any,
) -> list[Tensor]:  # fmt: skip
    """The running statistics are the first two targets when it trains with them."""
    if call.base == "_batch_norm_with_update":
        training, (momentum, eps) = True, rest
    elif call.base == "_native_batch_norm_legit_no_training":
        training, (momentum, eps) = False, rest
    else:
        training, momentum, eps = rest
    if call.overload == "no_stats":
        raise Unsupported(call.name)
    results = []
    if training:
        mean, left, variance = centred(input, beside_channels(input))
        if running_mean is not None:
            count = input.numel() / input.shape[1]
            new = mean.flatten(), variance.flatten() * (count / max(count - 1, 1))
            results = updated((running_mean, running_var), new, momentum)
    else:
        mean, variance = (per_channel(item, input) for item in (running_mean, running_var))
        left = input - mean
    scale = torch.rsqrt(variance + eps)
    spread = (per_channel(item, input) for item in (weight, bias))
    results.append(scaled_and_moved(left * scale, *spread))
    made = [mean.flatten(), scale.flatten()]
    for at, spec in enumerate(call.targets[len(results) :]):
        fits = at < len(made) and made[at].shape == spec.shape
        results.append(made[at] if fits else input.new_zeros(spec.shape))
    return results


@in_torch("aten.native_batch_norm_backward")
def _batch_norm_backward(
    call: Call, grad: Tensor, input: Tensor, weight: Tensor | None, running_mean: Any,
    running_var: Any, save_mean: Any, save_invstd: Any, train: bool, eps: float, output_mask: Any,
) -> list[Tensor]:  # fmt: skip
    dims = beside_channels(input)
    mean, scale = save_mean, save_invstd
    if not train:
        mean, scale = running_mean, torch.rsqrt(running_var + eps)
    normal = (input - per_channel(mean, input)) * per_channel(scale, input)
    along, level = (grad * normal).sum(dims), grad.sum(dims)
    results = []
    if output_mask[0]:
        share = input.shape[1] / input.numel()
        rest = grad
        if train:
            rest = rest - per_channel(level * share, input)
            rest = rest - normal * per_channel(along * share, input)
        factor = scale if weight is None else scale * weight
        results.append(rest * per_channel(factor, input))
    if output_mask[1]:
        results.append(along)
    if output_mask[2]:
        results.append(level)
    return results


def _in_groups(item: Tensor | None, group: int) -> Tensor | None:
    """A vector [channels] over groups and channels [groups, channels per group, 1]."""
    return None if item is None else item.view(group, -1, 1)


@in_torch("aten.native_group_norm")
def _group_norm(
    call: Call, input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int,
    HxW: int, group: int, eps: float,
) -> list[Tensor]:  # fmt: skip
    mean, rest, variance = centred(input.view(N, group, C // group, HxW), [2, 3])
    scale = torch.rsqrt(variance + eps)
    y = scaled_and_moved(rest * scale, _in_groups(weight, group), _in_groups(bias, group))
    return [y.view(call.shape), mean.view(N, group), scale.view(N, group)]


@in_torch("aten.native_group_norm_backward")
def _group_norm_backward(
    call: Call, grad_out: Tensor, input: Tensor, mean: Tensor, rstd: Tensor,
    weight: Tensor | None, N: int, C: int, HxW: int, group: int, output_mask: Any,
) -> list[Tensor]:  # fmt: skip
    grad, x = (item.view(N, group, C // group, HxW) for item in (grad_out, input))
    level, scale = (item.view(N, group, 1, 1) for item in (mean, rstd))
    normal = (x - level) * scale
    results = []
    if output_mask[0]:
        spread = _in_groups(weight, group)
        weighted = grad if spread is None else grad * spread
        results.append(_input_gradient(weighted, normal, scale, [2, 3]).view(input.shape))
    if output_mask[1]:
        results.append((grad * normal).sum([0, 3]).view(C))
    if output_mask[2]:
        results.append(grad.sum([0, 3]).view(C))
    return results


@in_torch("aten._weight_norm_interface_backward")
def _weight_norm_backward(
    call: Call, grad_w: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int
) -> list[Tensor]:
    """Of w = g * v / norms, the norms being those of v over all dims but one."""
    rest = [at for at in range(v.dim()) if at != dim]
    norms = norms.view(g.shape)
    along = (grad_w * v).sum(rest, keepdim=True) / norms
    return [(grad_w - v * along / norms) * g / norms, along]
