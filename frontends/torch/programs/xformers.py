"""xFormers where its extension cannot be loaded: it is built for CUDA and one version of PyTorch.

The idea: the package's Python chooses the kernel of an attention (flash attention, or the
memory-efficient one) by types, sizes and mask; both are PyTorch's kernels, which it calls where it
believes that its extension is there.  It calls those here that are recorded as one kernel each.
Kernels that only the extension has stay unavailable, as in a build without them.

    apply(); from xformers.ops import memory_efficient_attention
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import varlen

from flint.errors import FlintError
from flint.frontends.torch.programs import flash_kernels
from flint.frontends.torch.user_lines import at_user_line
from flint.host.imports import watch_imports
from flint.launching.notes import noted

_EXTENSION = "xformers._cpp_lib"
_FLASH, _EFFICIENT = (f"xformers.ops.fmha.{name}" for name in ("flash", "cutlass"))


def apply() -> None:
    """Let the package use PyTorch's kernels, from its import on."""
    watch_imports(
        {
            _EXTENSION: _place,
            _FLASH: lambda: _replace(_FLASH, _flash, _flash_gradients),
            _EFFICIENT: lambda: _replace(_EFFICIENT, _efficient, _efficient_gradients),
        }
    )


def _place() -> None:
    extension: Any = importlib.import_module(_EXTENSION)
    if not extension._built_with_cuda:
        extension._built_with_cuda = True
        noted["xFormers' extension is not loaded: its attention is recorded as PyTorch's"] += 1


def _replace(name: str, forward: Any, backward: Any) -> None:
    kernels: Any = importlib.import_module(name)
    kernels.FwOp.OPERATOR, kernels.BwOp.OPERATOR = staticmethod(forward), staticmethod(backward)


def _flash(
    q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor | None, starts_k: Tensor | None,
    used: Tensor | None, longest_q: int, longest_k: int, dropout: float, scale: float,
    causal: bool, window_left: int, window_right: int, return_softmax: bool,
    block_tables: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Attention [batch, length, heads, size], or of packed sequences [tokens, heads, size]."""
    _lacks(seqused_k=used, block_tables=block_tables)
    how = dropout, scale, causal, window_left, window_right
    if starts_q is None or starts_k is None:
        out, level, _, seed = flash_kernels._flash_attn_forward(q, k, v, *how)
    else:
        out, level, _, seed = flash_kernels._flash_attn_varlen_forward(
            q, k, v, starts_q, starts_k, longest_q, longest_k, *how
        )
    return out, level, seed


def _flash_gradients(
    share: bool, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, level: Tensor,
    starts_q: Tensor | None, starts_k: Tensor | None, longest_q: int, longest_k: int,
    dropout: float, scale: float, causal: bool, window_left: int, window_right: int,
    rng_state: Tensor | None,
) -> Any:  # fmt: skip
    """Gradients of queries, keys and values."""
    how = dropout, scale, causal, window_left, window_right
    if starts_q is None or starts_k is None:
        return flash_kernels.gradients(grad, q, k, v, out, level, *how, rng_state)
    return flash_kernels.packed_gradients(
        grad,
        q,
        k,
        v,
        out,
        level,
        starts_q,
        starts_k,
        longest_q,
        longest_k,
        *how[1:],
        rng_state,
    )


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None, max_seqlen_q: int, max_seqlen_k: int, dropout_p: float,
    custom_mask_type: int, compute_log_sumexp: bool, scale: float | None,
    seqlen_k: Tensor | None, window_size: int | None,
) -> Any:  # fmt: skip
    """As ``aten._efficient_attention_forward``: [batch, length, heads, size]."""
    _lacks(seqlen_k=seqlen_k)
    if cu_seqlens_q is not None:
        kernel: Any = varlen._varlen_attn
        flat = (item.flatten(0, 1) for item in (query, key, value))
        out, level, seed = kernel(
            *flat, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, custom_mask_type > 0,
            scale, [(window_size or 0) - 1, -1],
        )  # fmt: skip
        return out.unflatten(0, query.shape[:2]), level, seed, seed, max_seqlen_q, max_seqlen_k
    _whole(window_size)
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention
    by_head = (item.transpose(1, 2) for item in (query, key, value))
    out, level, *seeds = kernel(
        *by_head, bias, compute_log_sumexp, dropout_p, custom_mask_type > 0, scale=scale
    )
    return out.transpose(1, 2), level, *seeds, max_seqlen_q, max_seqlen_k


def _efficient_gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *, bias: Tensor | None, out: Tensor,
    cu_seqlens_q: Tensor | None, cu_seqlens_k: Tensor | None, max_seqlen_q: int,
    max_seqlen_k: int, logsumexp: Tensor, dropout_p: float, philox_seed: Tensor,
    philox_offset: Tensor, custom_mask_type: int, bias_requires_grad: bool, scale: float | None,
    num_splits_key: int | None = None, window_size: int | None = None, **_: Any,
) -> Any:  # fmt: skip
    """As ``aten._efficient_attention_backward``: gradients of q, k, v and the bias."""
    causal = custom_mask_type > 0
    if cu_seqlens_q is not None:
        kernel: Any = varlen._varlen_attn_backward
        flat = (item.flatten(0, 1) for item in (grad, q, k, v, out))
        found = kernel(
            *flat, logsumexp, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal,
            flash_kernels.seed_like(q), scale, [(window_size or 0) - 1, -1],
        )  # fmt: skip
        like = (q, k, v)
        return *(item.view_as(of) for item, of in zip(found, like, strict=True)), None
    _whole(window_size)
    kernel = torch.ops.aten._scaled_dot_product_efficient_attention_backward
    by_head = (item.transpose(1, 2) for item in (grad, q, k, v))
    *found, grad_bias = kernel(
        *by_head, bias, out.transpose(1, 2), logsumexp, philox_seed, philox_offset, dropout_p,
        [True] * 3 + [bias_requires_grad], causal, scale=scale,
    )  # fmt: skip
    return *(item.transpose(1, 2) for item in found), grad_bias


def _lacks(**given: Tensor | None) -> None:
    """Refuse a cache of keys, whose lengths are data."""
    for name, item in given.items():
        if item is not None:
            raise FlintError(f"xFormers' attention{at_user_line()} has no stand-in with {name}")


def _whole(window: int | None) -> None:
    if window:
        raise FlintError(f"xFormers' attention{at_user_line()} has no stand-in with a window")
