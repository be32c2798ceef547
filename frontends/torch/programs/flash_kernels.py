"""flash_attn's private functions by PyTorch's ops: a kernel's forward and its backward pass alone.

The idea: implementations of ring attention call the kernels themselves, once for each part of the
keys, and pass the buffers that gradients go to.  Names of arguments and results are those of
flash_attn 2.8.  PyTorch's kernels have buffers of their own, from which gradients are copied.

    out, level, _, seed = _flash_attn_forward(q, k, v, 0.0, None, True)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import varlen

from flint.frontends.torch.programs.flash_attention import left_out, window
from flint.frontends.torch.programs.windowed_attention import (
    limits,
    windowed_backward,
    windowed_forward,
)

_Forward = tuple[Tensor, Tensor, None, Tensor]


def _flash_attn_forward(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float, softmax_scale: float | None, causal: bool,
    window_size_left: int = -1, window_size_right: int = -1, softcap: float = 0.0,
    alibi_slopes: Tensor | None = None, return_softmax: bool = False,
) -> _Forward:  # fmt: skip
    """Attention [batch, length, heads, size], its log-sum-exps [batch, heads, length], its seed."""
    left_out(softcap=softcap, alibi_slopes=alibi_slopes)
    near = window_size_left, window_size_right
    causal = causal or near == (-1, 0)
    if limits(causal, near, q.shape[1], k.shape[1]):
        out, level, seed = windowed_forward(q, k, v, dropout_p, softmax_scale, causal, near)
        return out, level, None, seed
    kernel: Any = torch.ops.aten._scaled_dot_product_flash_attention
    by_head = (item.transpose(1, 2) for item in (q, k, v))
    out, level, *rest = kernel(*by_head, dropout_p, causal, False, scale=softmax_scale)
    return out.transpose(1, 2), level, None, rest[4]


def _flash_attn_backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor,
    dq: Tensor | None, dk: Tensor | None, dv: Tensor | None, dropout_p: float,
    softmax_scale: float | None, causal: bool, window_size_left: int = -1,
    window_size_right: int = -1, softcap: float = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, rng_state: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Write gradients into ``dq``, ``dk``, ``dv``; the result is as large as the log-sum-exps."""
    how = dropout_p, softmax_scale, causal, window_size_left, window_size_right
    _write((dq, dk, dv), gradients(dout, q, k, v, out, softmax_lse, *how, rng_state))
    return torch.empty_like(softmax_lse)


def gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, level: Tensor, dropout: float,
    scale: float | None, causal: bool, window_left: int, window_right: int, seed: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """Gradients of queries, keys and values [batch, length, heads, size], by one kernel."""
    near = window_left, window_right
    causal = causal or near == (-1, 0)
    seed = seed if seed is not None else seed_like(q)
    if limits(causal, near, q.shape[1], k.shape[1]):
        found = windowed_backward(grad, q, k, v, out, level, dropout, scale, causal, near, seed)
        return list(found)
    kernel: Any = torch.ops.aten._scaled_dot_product_flash_attention_backward
    by_head = (item.transpose(1, 2) for item in (grad, q, k, v, out))
    found = kernel(
        *by_head, level, None, None, q.shape[1], k.shape[1], dropout, causal, seed,
        seed.new_empty(()), scale=scale,
    )  # fmt: skip
    return [item.transpose(1, 2) for item in found]


def _flash_attn_varlen_forward(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: int, max_seqlen_k: int, dropout_p: float, softmax_scale: float | None,
    causal: bool, window_size_left: int = -1, window_size_right: int = -1, softcap: float = 0.0,
    alibi_slopes: Tensor | None = None, return_softmax: bool = False,
    block_table: Tensor | None = None, leftpad_k: Tensor | None = None,
    seqused_k: Tensor | None = None, zero_tensors: bool = False,
) -> _Forward:  # fmt: skip
    """The same within packed sequences: [tokens, heads, size], log-sum-exps [heads, tokens]."""
    left_out(softcap=softcap, alibi_slopes=alibi_slopes, dropout_p=dropout_p)
    kernel: Any = varlen._varlen_attn
    out, level, seed = kernel(
        q, k, v, cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k), causal,
        softmax_scale, window(causal, (window_size_left, window_size_right)),
        q.shape[-2] != k.shape[-2],
    )  # fmt: skip
    return out, level, None, seed


def _flash_attn_varlen_backward(
    dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor,
    dq: Tensor | None, dk: Tensor | None, dv: Tensor | None, cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int, dropout_p: float,
    softmax_scale: float | None, causal: bool, window_size_left: int = -1,
    window_size_right: int = -1, softcap: float = 0.0, alibi_slopes: Tensor | None = None,
    deterministic: bool = False, rng_state: Tensor | None = None, zero_tensors: bool = False,
) -> Tensor:  # fmt: skip
    """The same of packed sequences."""
    found = packed_gradients(
        dout, q, k, v, out, softmax_lse, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
        softmax_scale, causal, window_size_left, window_size_right, rng_state,
    )  # fmt: skip
    _write((dq, dk, dv), found)
    return torch.empty_like(softmax_lse)


def packed_gradients(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, level: Tensor, starts_q: Tensor,
    starts_k: Tensor, longest_q: int, longest_k: int, scale: float | None, causal: bool,
    window_left: int, window_right: int, seed: Tensor | None,
) -> Any:  # fmt: skip
    """Those of packed sequences [tokens, heads, size]."""
    kernel: Any = varlen._varlen_attn_backward
    return kernel(
        grad, q, k, v, out, level, starts_q, starts_k, int(longest_q), int(longest_k), causal,
        seed if seed is not None else seed_like(q), scale,
        window(causal, (window_left, window_right)),
    )  # fmt: skip


def seed_like(like: Tensor) -> Tensor:
    """A random state on the device of a tensor."""
    return like.new_empty(2, dtype=torch.uint64)


def _write(buffers: tuple[Tensor | None, ...], found: Any) -> None:
    for buffer, item in zip(buffers, found, strict=True):
        if buffer is not None:
            buffer.copy_(item)
