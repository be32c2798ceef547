"""Self-attention as models with many experts have it.

The idea: a ``Form`` says what a model's attention has beyond Llama's (latents, biases, sinks, norms
of queries and keys), a ``Span`` what one layer sees: everything before, a sliding window, or its
own chunk of the sequence.  The kernels are those that training frameworks call:
``scaled_dot_product_attention``, and FlexAttention for windows and sinks.

    attention = attention_of(width, heads, Form(sinks=True), Span(window=128))
    x = x + attention(norm(x), rotary_table(sequence, rotated_size(heads, form), theta))

Latents (MLA): DeepSeek-V2 (2024), section 2.1.  Sinks: Xiao et al., 2023, as GPT-OSS learns them.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import flex_attention as flex

from flint.models.mixtures import Form, Heads, Span
from flint.models.torch.layers import rotated


def rotated_size(heads: Heads, form: Form | None) -> int:
    """Elements of a head that carry positions."""
    latent = form and form.latent
    return latent.rotated if latent else heads.size


def attention_of(width: int, heads: Heads, form: Form | None, span: Span) -> nn.Module:
    """A layer's attention: ``attention(x, table)`` of ``x`` (B, S, D)."""
    form = form or Form()
    return (LatentAttention if form.latent else GroupedAttention)(width, heads, form, span)


class GroupedAttention(nn.Module):
    """Grouped-query attention with the additions of a ``Form``."""

    def __init__(self, width: int, heads: Heads, form: Form, span: Span) -> None:
        super().__init__()
        self.size, self.span, self.unit = heads.size, span, form.norm == "unit"
        self.wq = nn.Linear(width, heads.queries * heads.size, bias=form.bias)
        self.wk = nn.Linear(width, heads.keys * heads.size, bias=form.bias)
        self.wv = nn.Linear(width, heads.keys * heads.size, bias=form.bias)
        self.wo = nn.Linear(heads.queries * heads.size, width, bias=form.bias)
        learned = form.norm == "learned"
        self.q_norm = nn.RMSNorm(heads.size, eps=1e-5) if learned else None
        self.k_norm = nn.RMSNorm(heads.size, eps=1e-5) if learned else None
        self.sinks = nn.Parameter(torch.empty(heads.queries)) if form.sinks else None

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Attend; ``table`` is ``rotary_table``'s for the S positions of ``x``."""
        batch, length, _ = x.shape
        q = self.wq(x).view(batch, length, -1, self.size)
        k = self.wk(x).view(batch, length, -1, self.size)
        v = self.wv(x).view(batch, length, -1, self.size)
        if self.q_norm is not None and self.k_norm is not None:  # before positions, as in Qwen3
            q, k = self.q_norm(q), self.k_norm(k)
        if self.span.rotated:
            q, k = rotated(q, table), rotated(k, table)
            if self.unit:  # after them, as in Llama 4
                q, k = (F.rms_norm(item, (self.size,), eps=1e-5) for item in (q, k))
        return self.wo(attend(q, k, v, self.span, self.sinks))


class LatentAttention(nn.Module):
    """Multi-head latent attention."""

    def __init__(self, width: int, heads: Heads, form: Form, span: Span) -> None:
        super().__init__()
        latent = form.latent
        assert latent is not None
        self.heads, self.latent, self.span = heads, latent, span
        count, size = heads.queries, heads.size + latent.rotated
        if latent.queries:
            self.q_down = nn.Linear(width, latent.queries, bias=False)
            self.q_norm = nn.RMSNorm(latent.queries, eps=1e-5)
        self.q_up = nn.Linear(latent.queries or width, count * size, bias=False)
        self.kv_down = nn.Linear(width, latent.keys + latent.rotated, bias=False)
        self.kv_norm = nn.RMSNorm(latent.keys, eps=1e-5)
        self.kv_up = nn.Linear(latent.keys, count * (heads.size + latent.values), bias=False)
        self.wo = nn.Linear(count * latent.values, width, bias=False)

    def forward(self, x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
        """Attend; ``table`` is ``rotary_table``'s for the rotated elements."""
        (batch, length, _), count, latent = x.shape, self.heads.queries, self.latent
        q = self.q_norm(self.q_down(x)) if latent.queries else x
        q = self.q_up(q).view(batch, length, count, -1)
        own, turned = q.split([self.heads.size, latent.rotated], -1)
        q = torch.cat([own, rotated(turned, table)], -1)
        down, shared = self.kv_down(x).split([latent.keys, latent.rotated], -1)
        shared = rotated(shared.unsqueeze(2), table)  # one for all heads
        kv = self.kv_up(self.kv_norm(down)).view(batch, length, count, -1)
        own, v = kv.split([self.heads.size, latent.values], -1)
        k = torch.cat([own, shared.expand(-1, -1, count, -1)], -1)
        return self.wo(attend(q, k, v, self.span, None))


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, span: Span, sinks: torch.Tensor | None
) -> torch.Tensor:
    """Causal attention.

    Args:
        q: (B, S, H, size).
        k, v: (B, S, K, size) and (B, S, K, values); K divides H.
        span: what queries see; chunks are sequences of their own.
        sinks: (H,), or none.

    Returns:
        (B, S, H * values).
    """
    batch, length = q.shape[:2]
    if span.chunk and length > span.chunk:
        q, k, v = (item.reshape(-1, span.chunk, *item.shape[2:]) for item in (q, k, v))
    q, k, v = (item.transpose(1, 2) for item in (q, k, v))
    if span.window or sinks is not None:
        mixed = _flexible(q, k, v, span.window, sinks)
    else:
        gqa = q.shape[1] != k.shape[1]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=gqa)
    return mixed.transpose(1, 2).reshape(batch, length, -1)


@functools.cache
def _seen(window: int) -> Any:
    """What FlexAttention takes for a causal window."""

    def seen(batch: Any, head: Any, query: Any, key: Any) -> Any:
        causal = query >= key
        return causal & (query - key < window) if window else causal

    return seen


def _flexible(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int, sinks: torch.Tensor | None
) -> torch.Tensor:
    """FlexAttention; a sink takes its part of the softmax sum afterwards, from the log of that
    sum."""
    length = q.shape[2]
    mask = flex.create_block_mask(_seen(window), None, None, length, length, device=q.device)
    aux = flex.AuxRequest(lse=True)
    mixed, found = flex.flex_attention(q, k, v, block_mask=mask, enable_gqa=True, return_aux=aux)
    if sinks is None:
        return mixed
    kept = torch.sigmoid(found.lse - sinks.float()[:, None])  # sum / (sum + exp(sink))
    return mixed * kept[..., None].to(mixed.dtype)
