"""Norm and rotation as Hugging Face's Transformers spells them out, a kernel an operation.

The idea: its models are read rather than fused: ``modeling_llama.py`` and those made after it. What
Llama's paper needs, in one of PyTorch's kernels, takes eight and five, and the norm keeps what
each of them needs for the backward pass.
"""

from __future__ import annotations

import torch
from torch import nn


class WrittenNorm(nn.RMSNorm):
    """``LlamaRMSNorm``: computes in float32, scales in the type of its input."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, S, D) -> (B, S, D)."""
        wide = x.float()
        variance = wide.pow(2).mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(variance + self.eps)
        return self.weight * wide.to(x.dtype)


def doubled_table(table: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Cosines and sines of ``layers.rotary_table`` for both halves of a head: (length, 2 size), as
    ``LlamaRotaryEmbedding`` makes them once for all blocks."""
    cos, sin = table.chunk(2, dim=-1)
    return torch.cat((cos, cos, sin, sin), dim=-1).to(dtype)


def rotated_halves(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """``apply_rotary_pos_emb``: ``x`` (B, S, heads, size) with every head rotated by its position's
    angles, in the type of ``x``."""
    cos, sin = table[None, :, None].chunk(2, dim=-1)
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin
