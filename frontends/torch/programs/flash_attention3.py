"""FlashAttention 3's functions by those of flash_attn, for programs that import it where it is not
installed.

The idea: it computes the same, for Hopper, and its own package (``flash_attn_interface``) has the
same names; but arguments come in another order, there is no dropout, and both passes of its kernel
take dense and packed sequences.

    flash_attn_func(q, k, v, softmax_scale, causal=True)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flint.frontends.torch.programs import flash_attention, flash_kernels
from flint.frontends.torch.programs.flash_attention import flash_attn_with_kvcache, left_out
from flint.frontends.torch.programs.windowed_attention import EVERYWHERE

__all__ = ["flash_attn_with_kvcache"]
#: A sequence's lengths and offsets, if several are packed.
_Ends = Tensor | None


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None, causal: bool = False,
    qv: Tensor | None = None, q_descale: Tensor | None = None, k_descale: Tensor | None = None,
    v_descale: Tensor | None = None, window_size: tuple[int, int] = EVERYWHERE,
    attention_chunk: int = 0, softcap: float = 0.0, num_splits: int = 1,
    pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
    return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """Attention of queries [batch, length, heads, size] to keys; with ``return_attn_probs`` also
    its log-sum-exps [batch, heads, length]."""
    left_out(qv=qv, attention_chunk=attention_chunk)
    found = flash_attention.flash_attn_func(
        q, k, v, 0.0, softmax_scale, causal, window_size, softcap, None, deterministic,
        return_attn_probs,
    )  # fmt: skip
    return found[:2] if return_attn_probs else found


def flash_attn_qkvpacked_func(
    qkv: Tensor, softmax_scale: float | None = None, causal: bool = False,
    q_descale: Tensor | None = None, k_descale: Tensor | None = None,
    v_descale: Tensor | None = None, window_size: tuple[int, int] = EVERYWHERE,
    attention_chunk: int = 0, softcap: float = 0.0, deterministic: bool = False,
    num_heads_q: int | None = None, sm_margin: int = 0, return_attn_probs: bool = False,
) -> Any:  # fmt: skip
    """The same of one tensor [batch, length, 3, heads, size], or of [batch, length, heads, size],
    of which ``num_heads_q`` are the queries'."""
    if num_heads_q is None:
        parts = qkv.unbind(-3)
    else:
        keys = (qkv.shape[2] - num_heads_q) // 2
        parts = torch.split(qkv, [num_heads_q, keys, keys], -2)
    attend: Any = flash_attn_func
    return attend(
        *parts, softmax_scale, causal, window_size=window_size, attention_chunk=attention_chunk,
        softcap=softcap, return_attn_probs=return_attn_probs,
    )  # fmt: skip


def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: int, max_seqlen_k: int, seqused_q: Tensor | None = None,
    seqused_k: Tensor | None = None, softmax_scale: float | None = None, causal: bool = False,
    qv: Tensor | None = None, q_descale: Tensor | None = None, k_descale: Tensor | None = None,
    v_descale: Tensor | None = None, window_size: tuple[int, int] = EVERYWHERE,
    attention_chunk: int = 0, softcap: float = 0.0, num_splits: int = 1,
    pack_gqa: bool | None = None, deterministic: bool = False, sm_margin: int = 0,
    return_attn_probs: bool = False, **_: Any,
) -> Any:  # fmt: skip
    """Attention within packed sequences: [tokens, heads, size], ends [sequences + 1]."""
    left_out(qv=qv, attention_chunk=attention_chunk, seqused_q=seqused_q, seqused_k=seqused_k)
    found = flash_attention.flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0, softmax_scale,
        causal, window_size, softcap, None, deterministic, return_attn_probs,
    )  # fmt: skip
    return found[:2] if return_attn_probs else found


def _flash_attn_forward(
    q: Tensor, k: Tensor, v: Tensor, k_new: Tensor | None = None, v_new: Tensor | None = None,
    qv: Tensor | None = None, out_: Tensor | None = None, cu_seqlens_q: _Ends = None,
    cu_seqlens_k: _Ends = None, cu_seqlens_k_new: _Ends = None, seqused_q: _Ends = None,
    seqused_k: _Ends = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    page_table: Tensor | None = None, kv_batch_idx: Tensor | None = None,
    leftpad_k: Tensor | None = None, rotary_cos: Tensor | None = None,
    rotary_sin: Tensor | None = None, seqlens_rotary: Tensor | None = None,
    q_descale: Tensor | None = None, k_descale: Tensor | None = None,
    v_descale: Tensor | None = None, softmax_scale: float | None = None, causal: bool = False,
    window_size_left: int = -1, window_size_right: int = -1, attention_chunk: int = 0,
    softcap: float = 0.0, **_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Attention, its log-sum-exps, and two empty tensors: those of parts of the keys."""
    left_out(
        k_new=k_new, v_new=v_new, qv=qv, seqused_q=seqused_q, seqused_k=seqused_k,
        page_table=page_table, attention_chunk=attention_chunk,
    )  # fmt: skip
    how = 0.0, softmax_scale, causal, window_size_left, window_size_right, softcap
    if cu_seqlens_q is None or cu_seqlens_k is None:
        out, level, *_rest = flash_kernels._flash_attn_forward(q, k, v, *how)
    else:
        out, level, *_rest = flash_kernels._flash_attn_varlen_forward(
            q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q or 0, max_seqlen_k or 0, *how
        )
    return out_.copy_(out) if out_ is not None else out, level, *level.new_empty(2, 0)


def _flash_attn_backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor,
    cu_seqlens_q: _Ends = None, cu_seqlens_k: _Ends = None, sequed_q: _Ends = None,
    sequed_k: _Ends = None, max_seqlen_q: int | None = None, max_seqlen_k: int | None = None,
    dq: Tensor | None = None, dk: Tensor | None = None, dv: Tensor | None = None,
    softmax_scale: float | None = None, is_causal: bool = False, window_size_left: int = -1,
    window_size_right: int = -1, softcap: float = 0.0, *_: Any, **__: Any,
) -> Tensor:  # fmt: skip
    """Write gradients into ``dq``, ``dk``, ``dv``; the result is as large as the log-sum-exps."""
    kept = dout, q, k, v, out, softmax_lse, dq, dk, dv
    how = 0.0, softmax_scale, is_causal, window_size_left, window_size_right, softcap
    if cu_seqlens_q is None or cu_seqlens_k is None:
        return flash_kernels._flash_attn_backward(*kept, *how)
    return flash_kernels._flash_attn_varlen_backward(
        *kept, cu_seqlens_q, cu_seqlens_k, max_seqlen_q or 0, max_seqlen_k or 0, *how
    )


def flash_attn_combine(
    out_partial: Tensor, lse_partial: Tensor, out: Tensor | None = None, out_dtype: Any = None
) -> tuple[Tensor, Tensor]:
    """Attention to parts of the keys [parts, batch, length, heads, size] as one to all of them."""
    level = torch.logsumexp(lse_partial, 0)
    share = (lse_partial - level).exp().unsqueeze(-1)
    whole = (out_partial * share).sum(0).to(out_dtype or out_partial.dtype)
    return whole if out is None else out.copy_(whole), level
