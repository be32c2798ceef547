"""Rotary embeddings: one kernel each way.

fused_rope_forward(t, freqs, None, NVTE_QKV_Format.NVTE_SBHD, False, None, 1, 0)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flint.frontends.torch.programs.transformer_engine.enums import name_of
from flint.frontends.torch.programs.transformer_engine.kernels import kernel


@kernel
def _rope(t: Tensor, freqs: Tensor, interleaved: bool, back: bool) -> Tensor:
    size = freqs.shape[-1]
    cos, sin = torch.cos(freqs), torch.sin(freqs)
    turned, rest = t[..., :size].float(), t[..., size:]
    if interleaved:
        pairs = turned.reshape(*turned.shape[:-1], size // 2, 2)
        other = torch.stack((-pairs[..., 1], pairs[..., 0]), -1).flatten(-2)
    else:
        first, second = turned.chunk(2, -1)
        other = torch.cat((-second, first), -1)
    made = turned * cos - other * sin if back else turned * cos + other * sin
    return torch.cat((made.to(t.dtype), rest), -1)


def fused_rope_forward(
    t: Tensor, freqs: Tensor, start_positions: Tensor | None, form: Any, interleaved: bool,
    cu_seqlens: Tensor | None = None, cp_size: int = 1, cp_rank: int = 0,
) -> Tensor:  # fmt: skip
    """Positions in t, [length, batch, heads, size] or another form; angles [length, 1, 1, size]."""
    return _rope(t, _angles(t, freqs, name_of(form)), interleaved, False)


def fused_rope_backward(
    grad: Tensor, freqs: Tensor, start_positions: Tensor | None, form: Any, interleaved: bool,
    cu_seqlens: Tensor | None = None, cp_size: int = 1, cp_rank: int = 0,
) -> Tensor:  # fmt: skip
    """The gradient: turned back."""
    return _rope(grad, _angles(grad, freqs, name_of(form)), interleaved, True)


def _angles(t: Tensor, freqs: Tensor, form: str) -> Tensor:
    """Those of the rows of t, which broadcast to it."""
    if form.endswith("THD"):
        return freqs[: t.shape[0]].flatten(1, 2)
    if form.endswith("BSHD"):
        return freqs[: t.shape[1]].transpose(0, 1)
    return freqs[: t.shape[0]]
