"""Rotation as torchtitan computes it: pairs of neighbouring elements are complex numbers.

The idea: Meta's Llama multiplies by a complex number per position and pair (``apply_rotary_emb`` of
torchtitan's ``models/llama3``).  That is three kernels, to float32, the product and back, of which
PyTorch's compiler makes none better: it has no code for complex numbers and calls the product.
"""

from __future__ import annotations

import torch


def complex_table(table: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Cosines and sines of ``layers.rotary_table`` as complex numbers: (length, size / 2)."""
    cos, sin = table.chunk(2, dim=-1)
    return torch.complex(cos, sin)


def rotated_pairs(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """``x`` (B, S, heads, size) with every pair of a head rotated by its position's angle."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * table[None, :, None]).flatten(3).type_as(x)
