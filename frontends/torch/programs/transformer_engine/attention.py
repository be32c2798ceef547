"""Fused attention of Transformer Engine: cuDNN's kernels, which PyTorch has too.

The idea: arguments come by name from the package's own wrappers.  Queries, keys and values are
[length, batch, heads, size] ("sbhd"), [batch, length, heads, size] ("bshd") or packed
[tokens, heads, size] ("thd"); PyTorch's kernels see the same memory as [batch, heads, length,
size].

    out, (level, seed) = fused_attn_fwd({"q": q, "qkv_layout": "sbhd_sbhd_sbhd", ...})
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import varlen

from flint.errors import FlintError
from flint.frontends.torch.context import capture
from flint.frontends.torch.programs.windowed_attention import (
    EVERYWHERE,
    Window,
    limits,
    windowed_backward,
    windowed_forward,
)
from flint.frontends.torch.user_lines import at_user_line

#: Order of memory -> dims of [batch, heads, length, size].
_DIMS = {"sbhd": (1, 2, 0, 3), "bshd": (0, 2, 1, 3), "bhsd": (0, 1, 2, 3)}
#: The same backwards.
_BACK = {"sbhd": (2, 0, 1, 3), "bshd": (0, 2, 1, 3), "bhsd": (0, 1, 2, 3)}
#: Order of memory -> dims of [batch, length, heads, size], and backwards.
_ROWS = {"sbhd": (1, 0, 2, 3), "bshd": (0, 1, 2, 3), "bhsd": (0, 2, 1, 3)}


def fused_attn_fwd(given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Attention, and what its backward pass needs: log-sum-exps and the random state.

    Args:
        given: the wrapper's arguments by name.
    """
    _check(given)
    form, causal, scale = _form(given), _is_causal(given), given["attn_scale"]
    q, k, v = (given[name] for name in "qkv")
    if form == "thd":
        kernel: Any = varlen._varlen_attn
        out, level, seed = kernel(
            q, k, v, given["cu_seqlens_q"], given["cu_seqlens_kv"], given["max_seqlen_q"],
            given["max_seqlen_kv"], causal, scale, list(_window(given)), q.shape[1] != k.shape[1],
        )  # fmt: skip
        return _results(given, out, [level, seed])
    if limits(causal, _window(given)):
        q, k, v = (item.permute(_ROWS[form]) for item in (q, k, v))
        out, level, seed = windowed_forward(
            q, k, v, given["dropout"], scale, causal, _window(given)
        )
        return _results(given, out.permute(_ROWS[form]), [level, seed])
    kernel = torch.ops.aten._scaled_dot_product_cudnn_attention
    by_head = (item.permute(_DIMS[form]) for item in (q, k, v))
    out, level, *rest = kernel(
        *by_head, given["attn_bias"], True, given["dropout"], causal, False, scale=scale
    )
    return _results(given, out.permute(_BACK[form]), [level, rest[4]])


def fused_attn_bwd(given: Mapping[str, Any]) -> list[Any]:
    """Gradients of queries, keys and values, and of the bias and the softmax's offset (None)."""
    form, causal, scale = _form(given), _is_causal(given), given["attn_scale"]
    q, k, v, out = (given[name] for name in "qkvo")
    level, seed, *_ = given["aux_ctx_tensors"]
    lengths = given["max_seqlen_q"], given["max_seqlen_kv"]
    if form == "thd":
        kernel: Any = varlen._varlen_attn_backward
        ends = given["cu_seqlens_q"], given["cu_seqlens_kv"]
        found = kernel(
            given["d_o"],
            q,
            k,
            v,
            out,
            level,
            *ends,
            *lengths,
            causal,
            seed,
            scale,
            list(_window(given)),
        )
        return [*found, None, None]
    if limits(causal, _window(given)):
        grad, q, k, v, out = (item.permute(_ROWS[form]) for item in (given["d_o"], q, k, v, out))
        gradients = windowed_backward(
            grad, q, k, v, out, level, given["dropout"], scale, causal, _window(given), seed
        )
        return [*(item.permute(_ROWS[form]) for item in gradients), None, None]
    kernel = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    by_head = (item.permute(_DIMS[form]) for item in (given["d_o"], q, k, v, out))
    found = kernel(
        *by_head, level, seed, seed, given.get("attn_bias"), None, None, *lengths,
        given["dropout"], causal, scale=scale,
    )  # fmt: skip
    return [*(item.permute(_BACK[form]) for item in found), None, None]


def _form(given: Mapping[str, Any]) -> str:
    """ "sbhd" of "sbh3d", "sbhd_sb2hd" and "sbhd_sbhd_sbhd"."""
    layout: str = given["qkv_layout"]
    first = layout.replace("2", "").replace("3", "").split("_")[0]
    if first not in ("thd", *_DIMS):
        raise FlintError(f"fused attention{at_user_line()} of layout {layout} has no stand-in")
    return first


def _is_causal(given: Mapping[str, Any]) -> bool:
    return "causal" in given["attn_mask_type"]


def _window(given: Mapping[str, Any]) -> Window:
    left, right = given["window_size"] or EVERYWHERE
    return left, 0 if _is_causal(given) else right


def _check(given: Mapping[str, Any]) -> None:
    """Report what PyTorch's kernels lack."""
    if given["q"].dtype not in (torch.float16, torch.bfloat16):
        raise FlintError(f"fused attention{at_user_line()} in {given['q'].dtype} has no stand-in")
    assume = capture().assume
    if _form(given) != "thd" and "padding" in given["attn_mask_type"]:
        assume(f"fused attention{at_user_line()} is padded: padding counts, an upper bound")


def _results(given: Mapping[str, Any], out: Tensor, kept: list[Tensor]) -> tuple[Any, ...]:
    if not given.get("return_max_logit"):
        return out, kept
    return out, kept, out.new_empty(given["q"].shape[-2])
