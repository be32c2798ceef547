"""Layers of Llama 3 and of GPT as modules.

The idea: shapes are written in one way: B batch, S sequence, D width, H query heads, K key heads, F
hidden width of the feed-forward network.  Under tensor parallelism each rank has some of the heads
and of the hidden width, so layers never name those numbers: they take them from their arguments.

    x = x + attention(attention_norm(x), rotary_table(sequence, size, theta))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn

from flint.models.mixtures import Heads
from flint.models.torch.huggingface import WrittenNorm, doubled_table, rotated_halves
from flint.models.torch.torchtitan import complex_table, rotated_pairs


def rotary_table(
    length: int, size: int, theta: float, device: torch.device | str | None = None
) -> torch.Tensor:
    """Cosines and sines of the rotary position embedding (Su et al., 2021).

    Args:
        length: positions.
        size: elements of a head.
        theta: base of the wavelengths.
        device: of the result.

    Returns:
        (length, size) of float32: size / 2 cosines, then as many sines.
    """
    exponents = torch.arange(0, size, 2, dtype=torch.float32, device=device) / size
    positions = torch.arange(length, dtype=torch.float32, device=device)
    angles = torch.outer(positions, theta**-exponents)
    return torch.cat((angles.cos(), angles.sin()), dim=-1)


def plain_table(table: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The table as it is."""
    return table


def rotated(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """``x`` (B, S, heads, size) with every head rotated by its position's angles."""
    cos, sin = table[None, :, None, :].chunk(2, dim=-1)
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    return turned.type_as(x)


def before(length: int, device: torch.device) -> torch.Tensor:
    """A causal mask (S, S) of bool."""
    positions = torch.arange(length, device=device)
    return positions[None, :] <= positions[:, None]


class Attention(nn.Module):
    """Causal self-attention of (B, S, D)."""

    def __init__(self, width: int, heads: Heads, kind: Style) -> None:
        super().__init__()
        bias = kind.bias
        self.size, self.groups = heads.size, heads.queries // heads.keys
        self.rotated, self.repeated = kind.rotated, kind.repeated
        self.wq = nn.Linear(width, heads.queries * heads.size, bias=bias)
        self.wk = nn.Linear(width, heads.keys * heads.size, bias=bias)
        self.wv = nn.Linear(width, heads.keys * heads.size, bias=bias)
        self.wo = nn.Linear(heads.queries * heads.size, width, bias=bias)
        self.q_norm = kind.norm(heads.size) if kind.normed else None
        self.k_norm = kind.norm(heads.size) if kind.normed else None

    def forward(
        self, x: torch.Tensor, table: torch.Tensor | None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Attend.

        Args:
            x: (B, S, D).
            table: ``rotary_table``'s for the S positions of ``x``; None: unrotated.
            mask: (S, S) of bool that says which positions are seen; None: those before, by the
                kernel.
        """
        batch, length, _ = x.shape
        q = self.wq(x).view(batch, length, -1, self.size)
        k = self.wk(x).view(batch, length, -1, self.size)
        v = self.wv(x).view(batch, length, -1, self.size)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if table is not None:
            q, k = self.rotated(q, table), self.rotated(k, table)
        if self.repeated:
            k, v = (
                item[:, :, :, None].expand(-1, -1, -1, self.groups, -1).flatten(2, 3)
                for item in (k, v)
            )
        q, k, v = (item.transpose(1, 2) for item in (q, k, v))
        if mask is None and self.repeated:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        elif mask is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:  # No fused kernel takes both a mask and groups.
            k, v = (
                item[:, :, None].expand(-1, -1, self.groups, -1, -1).flatten(1, 2)
                for item in (k, v)
            )
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.wo(mixed.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """Gated feed-forward network (SwiGLU: Shazeer, 2020) of (B, S, D)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class PlainFeedForward(nn.Module):
    """Feed-forward network of GPT-2 and GPT-3 (Radford et al., 2019) of (B, S, D), with biases."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        return self.down(F.gelu(self.up(x)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How families of transformers differ.

    Attributes:
        norm: ``norm(width)``, in front of each half of a block and of the head.
        feed_forward: ``feed_forward(width, hidden)``.
        bias: of attention's projections.
        learned_positions: a learned vector per position is added to the embedding; else queries
            and keys are rotated.
        masked: a mask is written out, (S, S) of bool, which attention reads.
        normed: each head of queries and keys has a norm, whose weight all heads share.
        repeated: keys and values are copied for each of their queries' heads.
        rotated: how they are, by what ``table`` makes of ``rotary_table``'s for all blocks.
    """

    norm: Callable[[int], nn.Module]
    feed_forward: Callable[[int, int], nn.Module]
    bias: bool = False
    learned_positions: bool = False
    masked: bool = False
    normed: bool = False
    repeated: bool = False
    rotated: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = rotated
    table: Callable[[torch.Tensor, torch.dtype], torch.Tensor] = plain_table


def rms_norm(width: int) -> nn.Module:
    """Llama's norm."""
    return nn.RMSNorm(width, eps=1e-5)


_TITAN = Style(norm=rms_norm, feed_forward=FeedForward, rotated=rotated_pairs, table=complex_table)
_NORMED = Style(
    norm=rms_norm, feed_forward=FeedForward, rotated=rotated_halves, table=doubled_table,
    normed=True,
)  # fmt: skip
_WRITTEN = Style(
    norm=WrittenNorm, feed_forward=FeedForward, rotated=rotated_halves, table=doubled_table
)
#: Llama's (Touvron et al., 2023), the same as Hugging Face's Transformers spells it out, with and
#: without a mask, and with Qwen3's norms of queries and keys (Qwen Team, 2025), as torchtitan does,
#: with PyTorch's norm as one kernel and, before July 2025, as eight (pytorch/pytorch#153666), its
#: Qwen3, of 2025 with ``repeat_kv``, and GPT-2's and GPT-3's (Radford et al., 2019).
STYLES = {
    "llama": Style(norm=rms_norm, feed_forward=FeedForward),
    "torchtitan": _TITAN,
    "torchtitan, written": replace(_TITAN, norm=WrittenNorm),
    "torchtitan, normed": _NORMED,
    "torchtitan, repeated": replace(_NORMED, repeated=True),
    "huggingface": _WRITTEN,
    "huggingface, masked": replace(_WRITTEN, masked=True),
    "huggingface, normed": replace(_WRITTEN, normed=True),
    "gpt": Style(
        norm=nn.LayerNorm, feed_forward=PlainFeedForward, bias=True, learned_positions=True
    ),
}


class Block(nn.Module):
    """Attention and feed-forward network, each behind a norm and beside a residual."""

    def __init__(self, width: int, heads: Heads, hidden: int, style: str = "llama") -> None:
        super().__init__()
        kind = STYLES[style]
        self.attention_norm = kind.norm(width)
        self.attention = Attention(width, heads, kind)
        self.mlp_norm = kind.norm(width)
        self.mlp = kind.feed_forward(width, hidden)

    def forward(
        self, x: torch.Tensor, table: torch.Tensor | None, *mask: torch.Tensor
    ) -> torch.Tensor:
        """(B, S, D) -> (B, S, D); ``mask`` as of ``Attention``, if there is one."""
        x = x + self.attention(self.attention_norm(x), table, *mask)
        return x + self.mlp(self.mlp_norm(x))
