"""Scaled dot product attention as fused kernels.

On a custom device PyTorch would decompose attention into matrix products.  On a GPU it
picks a kernel by the arguments: flash attention for half precision without a mask, the
memory-efficient one for a mask, single precision, or values of another size than queries (latent
attention), both unless the user switched them off.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from flint.frontends.torch.patching import register_kernels

#: Largest head that flash attention takes (its CUDA kernels').
_FLASH_HEAD = 256


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
    fits = query.dim() == 4 and value.shape[-1] == query.shape[-1] <= _FLASH_HEAD
    switches: Any = torch.backends.cuda
    if half and fits and attn_mask is None and switches.flash_sdp_enabled():
        return aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
    # cuDNN's kernel does the same work; a program may allow that one alone.
    fused = switches.mem_efficient_sdp_enabled() or (half and switches.cudnn_sdp_enabled())
    if query.dim() == 4 and fused:
        if enable_gqa:
            groups = query.shape[-3] // key.shape[-3]
            key, value = (item.repeat_interleave(groups, -3) for item in (key, value))
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:
                hidden = torch.scalar_tensor(-math.inf, dtype=query.dtype, device=query.device)
                attn_mask = torch.where(attn_mask, 0.0, hidden)
            attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
        needs = torch.is_grad_enabled() and any(item.requires_grad for item in (query, key, value))
        return aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, needs, dropout_p, is_causal, scale=scale
        )[0]
    return aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]


#: Ops that the recording device has as one kernel, though PyTorch decomposes them below autograd.
WHOLE = {torch.ops.aten.scaled_dot_product_attention.default: on_device}
