"""flash_attn's functions by PyTorch's ops, for programs that import it where it is not installed.

The idea: flash_attn needs a GPU to be built, and PyTorch has the same attention kernels (dense, and
of packed sequences).  Arguments and results are those of flash_attn 2.8: queries, keys and values
are [batch, length, heads, size], or [tokens, heads, size] with the sequences' ends.  Its smaller
fused kernels (norms, rotary embeddings, losses) are several ops each here.

    flash_attn_func(q, k, v, causal=True)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.programs.windowed_attention import (
    EVERYWHERE,
    limits,
    windowed_forward,
)
from flint.frontends.torch.user_lines import at_user_line


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None,
    causal: bool = False, window_size: tuple[int, int] = EVERYWHERE, softcap: float = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False,
    return_attn_probs: bool = False, **_: Any,
) -> Any:  # fmt: skip
    """Attention of queries [batch, length, heads, size] to keys, by one kernel."""
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
    left_out(softcap=softcap, alibi_slopes=alibi_slopes)
    causal = causal or tuple(window_size) == (-1, 0)
    if limits(causal, window_size, q.shape[1], k.shape[1]):
        out, level, _seed = windowed_forward(
            q, k, v, dropout_p, softmax_scale, causal, window_size
        )  # fmt: skip
    else:
        kernel: Any = torch.ops.aten._scaled_dot_product_flash_attention
        by_head = (item.transpose(1, 2) for item in (q, k, v))
        out, level, *_rest = kernel(*by_head, dropout_p, causal, False, scale=softmax_scale)
        out = out.transpose(1, 2)
    return (out, level, None) if return_attn_probs else out


def window(causal: bool, given: tuple[int, int]) -> list[int]:
    """The positions before and after a query that it sees; -1: all."""
    return [-1, 0] if causal and tuple(given) == EVERYWHERE else list(given)


def left_out(**given: Tensor | float | None) -> None:
    """Report arguments that PyTorch's kernels do not have."""
    names = [name for name, item in given.items() if isinstance(item, Tensor) or item]
    if names:
        capture().notice(f"flash_attn{at_user_line()}: without {' and '.join(names)}")


def flash_attn_qkvpacked_func(qkv: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The same of one tensor [batch, length, 3, heads, size]."""
    attend: Any = flash_attn_func
    return attend(*qkv.unbind(2), *args, **kwargs)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The same of keys and values in one tensor [batch, length, 2, heads, size]."""
    attend: Any = flash_attn_func
    return attend(q, *kv.unbind(2), *args, **kwargs)


def flash_attn_varlen_func(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor,
    max_seqlen_q: int, max_seqlen_k: int, dropout_p: float = 0.0,
    softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = EVERYWHERE, softcap: float = 0.0,
    alibi_slopes: Tensor | None = None, deterministic: bool = False,
    return_attn_probs: bool = False, **_: Any,
) -> Any:  # fmt: skip
    """Attention within packed sequences: [tokens, heads, size], ends [sequences + 1]."""
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    left_out(softcap=softcap, alibi_slopes=alibi_slopes, dropout_p=dropout_p)
    grouped = {"enable_gqa": True} if q.shape[-2] != k.shape[-2] else {}
    longest = int(max_seqlen_q), int(max_seqlen_k)
    attend: Any = varlen_attn
    aux = AuxRequest(lse=True) if return_attn_probs else None
    found = attend(
        q, k, v, cu_seqlens_q, cu_seqlens_k, *longest, scale=softmax_scale,
        window_size=tuple(window(causal, window_size)), return_aux=aux, **grouped,
    )  # fmt: skip
    return (*found, None) if return_attn_probs else found


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, *args: Any, **kwargs: Any
) -> Any:
    """The same of one tensor [tokens, 3, heads, size]."""
    ends, longest = (cu_seqlens, cu_seqlens), (max_seqlen, max_seqlen)
    attend: Any = flash_attn_varlen_func
    return attend(*qkv.unbind(1), *ends, *longest, *args, **kwargs)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Any:
    """The same of keys and values in one tensor [tokens, 2, heads, size]."""
    attend: Any = flash_attn_varlen_func
    return attend(q, *kv.unbind(1), *args, **kwargs)


def flash_attn_with_kvcache(*_: Any, **__: Any) -> Any:
    """Attention to keys and values of earlier calls, which training programs import only."""
    raise FlintError(
        f"flash_attn_with_kvcache{at_user_line()} has no stand-in: generate without flash_attn "
        "(sdpa, say)"
    )


def index_first_axis(input: Tensor, indices: Tensor) -> Tensor:
    """Rows of a tensor."""
    return input[indices]


def unpad_input(hidden_states: Tensor, attention_mask: Tensor, unused_mask: Any = None) -> Any:
    """The tokens [tokens, ...] of a padded batch [batch, length, ...], and where they are."""
    lengths = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = attention_mask.flatten().nonzero().flatten()
    ends = functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    rows = hidden_states.flatten(0, 1)[indices]
    return rows, indices, ends, int(lengths.max().item()), lengths


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """The padded batch of tokens; its inverse."""
    padded = hidden_states.new_zeros(batch * seqlen, *hidden_states.shape[1:])
    return padded.index_copy(0, indices, hidden_states).view(batch, seqlen, *padded.shape[1:])


def apply_rotary_emb(
    x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool = False, inplace: bool = False,
    seqlen_offsets: int = 0, cu_seqlens: Tensor | None = None, max_seqlen: int | None = None,
) -> Tensor:  # fmt: skip
    """Positions (``cos`` and ``sin``: [positions, size / 2]) in x [batch, length, heads, size]."""
    size = 2 * cos.shape[-1]
    cos, sin = (item[seqlen_offsets : seqlen_offsets + x.shape[-3], None] for item in (cos, sin))
    turned, rest = x[..., :size], x[..., size:]
    halves = (turned[..., ::2], turned[..., 1::2]) if interleaved else turned.chunk(2, -1)
    both = halves[0] * cos - halves[1] * sin, halves[0] * sin + halves[1] * cos
    made = torch.stack(both, -1).flatten(-2) if interleaved else torch.cat(both, -1)
    made = torch.cat((made.to(x.dtype), rest), -1)
    return x.copy_(made) if inplace else made


class RotaryEmbedding(torch.nn.Module):
    """Positions in queries and keys; angles are those of the original paper."""

    def __init__(
        self, dim: int, base: float = 10000.0, interleaved: bool = False,
        scale_base: float | None = None, pos_idx_in_fp32: bool = True, device: Any = None, **_: Any,
    ) -> None:  # fmt: skip
        """Of the first ``dim`` elements of each head."""
        super().__init__()
        left_out(scale_base=scale_base)
        self.dim, self.base, self.interleaved, self.scale_base = dim, base, interleaved, scale_base
        self.pos_idx_in_fp32, self.scale = pos_idx_in_fp32, None
        self.register_buffer("inv_freq", self._compute_inv_freq(device), persistent=False)
        self._seq_len_cached = 0
        self._cos_cached: Tensor | None = None
        self._sin_cached: Tensor | None = None

    def _compute_inv_freq(self, device: Any = None) -> Tensor:
        places = torch.arange(0, self.dim, 2, device=device, dtype=torch.float32)
        return 1 / self.base ** (places / self.dim)

    def _update_cos_sin_cache(self, seqlen: int, device: Any = None, dtype: Any = None) -> None:
        """Cosines and sines [seqlen, dim / 2], made when a longer sequence comes."""
        known = self._cos_cached
        if known is not None and seqlen <= self._seq_len_cached and known.dtype == dtype:
            return
        self._seq_len_cached = seqlen
        positions = torch.arange(seqlen, device=device, dtype=torch.float32)
        angles = torch.outer(positions, self.get_buffer("inv_freq").to(device))
        self._cos_cached, self._sin_cached = angles.cos().to(dtype), angles.sin().to(dtype)

    def forward(
        self, qkv: Tensor, kv: Tensor | None = None, seqlen_offset: int = 0,
        cu_seqlens: Tensor | None = None, max_seqlen: int | None = None, **_: Any,
    ) -> Any:  # fmt: skip
        """Of ``qkv`` [batch, length, 3, heads, size], or of queries and ``kv`` [.., 2, ..]."""
        self._update_cos_sin_cache(
            (max_seqlen or qkv.shape[-4 if kv is None else -3]) + seqlen_offset, qkv.device,
            qkv.dtype,
        )  # fmt: skip
        tables, how = (self._cos_cached, self._sin_cached), (self.interleaved, False, seqlen_offset)
        turn: Any = apply_rotary_emb
        if kv is not None:
            keys, values = kv.unbind(-3)
            return turn(qkv, *tables, *how), torch.stack((turn(keys, *tables, *how), values), -3)
        queries, keys, values = qkv.unbind(-3)
        turned = (turn(item, *tables, *how) for item in (queries, keys))
        return torch.stack((*turned, values), -3)


def layer_norm_fn(
    x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None = None,
    x1: Tensor | None = None, weight1: Tensor | None = None, bias1: Tensor | None = None,
    eps: float = 1e-6, dropout_p: float = 0.0, rowscale: Tensor | None = None,
    prenorm: bool = False, residual_in_fp32: bool = False, zero_centered_weight: bool = False,
    is_rms_norm: bool = False, *_: Any, **__: Any,
) -> Any:  # fmt: skip
    """Norm of a tensor and its residual; with ``prenorm`` also their sum."""
    kept = functional.dropout(x, dropout_p) if dropout_p else x
    total = kept if residual is None else kept + residual
    scale = weight + 1 if zero_centered_weight else weight
    shape = (total.shape[-1],)
    if is_rms_norm:
        normal = functional.rms_norm(total.to(scale.dtype), shape, scale, eps)
    else:
        normal = functional.layer_norm(total.to(scale.dtype), shape, scale, bias, eps)
    normal = normal.to(x.dtype)
    return (normal, total.float() if residual_in_fp32 else total) if prenorm else normal


def rms_norm_fn(x: Tensor, weight: Tensor, bias: Tensor | None, *args: Any, **kwargs: Any) -> Any:
    """The same without the mean."""
    norm: Any = layer_norm_fn
    return norm(x, weight, bias, *args, **kwargs, is_rms_norm=True)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Any:
    """Norm without the mean."""
    return layer_norm_fn(x, weight, None, eps=epsilon, is_rms_norm=True)


class RMSNorm(torch.nn.RMSNorm):
    """A layer of it."""

    def __init__(self, hidden_size: int, eps: float = 1e-5, **kwargs: Any) -> None:
        """Of the last dim."""
        super().__init__(hidden_size, eps, **{k: kwargs[k] for k in kwargs if k in _PLACES})


_PLACES = ("device", "dtype")


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """Loss over a vocabulary that one rank holds."""

    def __init__(
        self, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0,
        *_: Any, **__: Any,
    ) -> None:  # fmt: skip
        """Arguments as PyTorch's."""
        super().__init__(
            ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
        )


def cross_entropy_loss(
    logits: Tensor, labels: Tensor, *_: Any, label_smoothing: float = 0.0, ignore_index: int = -100,
    **__: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Losses of the rows of ``logits`` [tokens, vocabulary], and squared logarithms' (zeros)."""
    losses = functional.cross_entropy(
        logits, labels, reduction="none", label_smoothing=label_smoothing,
        ignore_index=ignore_index,
    )  # fmt: skip
    return losses, torch.zeros_like(losses)


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    """A gated activation."""
    return functional.silu(x) * y
