"""Scaled dot product attention as fused kernels.

On a custom device PyTorch would decompose attention into matrix products.  On a GPU it picks a
kernel by the arguments (``can_use_*_attention`` in aten/src/ATen/native/transformers/cuda/
sdp_utils.cpp), the first of these that takes them and that the user has not switched off:

- cuDNN's, on Hopper and Blackwell (``check_prefer_cudnn_attention``), for half precision, also with
  a mask, unless that needs a gradient;
- flash attention, for half precision without a mask;
- the memory-efficient one, for a mask, single precision, or values of another size than queries.

None of them takes a tensor whose last dim is not contiguous: then products and a softmax run.
"""

from __future__ import annotations

import math
import os
from typing import Any

import torch

from flint.frontends.torch.patching import register_kernels

#: Largest head that flash attention takes (its CUDA kernels').
_FLASH_HEAD = 256
#: Devices on which PyTorch asks cuDNN first, and the largest head that its kernels take there.
_CUDNN_HEAD = {(9, 0): 256, (10, 0): 128}


def apply() -> None:
    """Give the recording device its attention kernels."""
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        register_kernels("aten", key, {"scaled_dot_product_attention": on_device})


def on_device(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Attention by the kernel that a GPU would use; arguments as PyTorch's function."""
    aten: Any = torch.ops.aten
    half = query.dtype in (torch.float16, torch.bfloat16)
    given = [query, key, value] if attn_mask is None else [query, key, value, attn_mask]
    dense = query.dim() == 4 and all(item.stride(-1) == 1 or item.shape[-1] == 1 for item in given)
    same = value.shape[-1] == query.shape[-1] <= _FLASH_HEAD
    switches: Any = torch.backends.cuda
    if dense and half and _prefers_cudnn(query, key, value, attn_mask, dropout_p):
        mask = None if attn_mask is None else _added(attn_mask, query, key)
        return aten._scaled_dot_product_cudnn_attention(
            query, key, value, mask, _needs_gradients(query, key, value), dropout_p, is_causal,
            False, scale=scale,
        )[0]  # fmt: skip
    if dense and half and same and attn_mask is None and switches.flash_sdp_enabled():
        return aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
    # cuDNN's kernel does the same work; a program may allow that one alone.
    fused = switches.mem_efficient_sdp_enabled() or (half and switches.cudnn_sdp_enabled())
    if dense and fused:
        if enable_gqa:
            groups = query.shape[-3] // key.shape[-3]
            key, value = (item.repeat_interleave(groups, -3) for item in (key, value))
        if attn_mask is not None:
            attn_mask = _added(attn_mask, query, key).expand(*query.shape[:-1], key.shape[-2])
        needs = _needs_gradients(query, key, value)
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, needs, dropout_p, is_causal, scale=scale
        )[0]
    return aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]


def _prefers_cudnn(query: Any, key: Any, value: Any, mask: Any, dropout: float) -> bool:
    """Whether PyTorch runs cuDNN's kernel for tensors of half precision."""
    most = _CUDNN_HEAD.get(torch.cuda.get_device_capability(), 0)
    switches: Any = torch.backends.cuda
    later = os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1"
    return (
        not later
        and switches.cudnn_sdp_enabled()
        and not torch.are_deterministic_algorithms_enabled()
        and max(query.shape[-1], value.shape[-1]) <= most
        and query.shape[-1] % 8 == value.shape[-1] % 8 == 0
        and key.shape[-2] > 1
        and not (query.shape[-2] == 1 and dropout > 0)
        and not (mask is not None and mask.requires_grad)
    )


def _needs_gradients(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(item.requires_grad for item in tensors)


def _added(mask: Any, query: Any, key: Any) -> Any:
    """What is added to scores for a mask: 0 or -inf in place of a bool."""
    if mask.dtype != torch.bool:
        return mask
    hidden = torch.scalar_tensor(-math.inf, dtype=query.dtype, device=query.device)
    return torch.where(mask, 0.0, hidden)


#: Ops that the recording device has as one kernel, though PyTorch decomposes them below autograd.
WHOLE = {torch.ops.aten.scaled_dot_product_attention.default: on_device}
