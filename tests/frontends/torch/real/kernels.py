"""Kernels that GPUs have and the CPU lacks, for the CPU: names, signatures, results' layouts.

The CPU takes root mean square norms apart, and its attention has a name and memory layouts of its
own, which the ops around it follow; context parallelism knows the GPU's kernels only.  For the
steps in which that would blur what is compared, real runs get kernels under the GPU's names,
computed by what the CPU has.  Which layouts the GPU's kernels give: aten/src/ATen/native/
transformers/cuda/attention.cu and attention_backward.cu of PyTorch 2.13.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

_aten: Any = torch.ops.aten


@contextlib.contextmanager
def accelerator_kernels(kinds):
    """Within it, the CPU has a GPU's "attention", "histogram" of integers or RMS "norm"."""
    library = torch.library.Library("aten", "IMPL")
    for kind in kinds:
        for name, kernel, keys in _KERNELS[kind]:
            for key in keys:
                library.impl(name, kernel, key, allow_override=True)
    try:
        yield
    finally:
        library._destroy()


def _attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None,
    enable_gqa=False,
):  # fmt: skip
    assert attn_mask is None
    if value.shape[-1] != query.shape[-1]:  # which flash attention does not take
        op = _aten._scaled_dot_product_efficient_attention
        return op(query, key, value, None, True, dropout_p, is_causal, scale=scale)[0]
    op = _aten._scaled_dot_product_flash_attention
    return op(query, key, value, dropout_p, is_causal, False, scale=scale)[0]


def _like(layout, values):
    """Values in another tensor's layout."""
    return torch.empty_like(layout).copy_(values)


def _flash(
    query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):
    op = _aten._scaled_dot_product_flash_attention_for_cpu
    out, logsumexp = op(query, key, value, dropout_p, is_causal, scale=scale)
    state = torch.zeros(2, dtype=torch.uint64)
    unused = torch.empty((), dtype=torch.uint64)
    lengths = query.shape[2], key.shape[2]
    told = logsumexp.contiguous(), None, None, *lengths, state, unused, query.new_empty(0)
    return _like(query, out), *told


def _flash_backward(
    grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
    is_causal, philox_seed, philox_offset, *, scale=None,
):  # fmt: skip
    op = _aten._scaled_dot_product_flash_attention_for_cpu_backward
    found = op(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, scale=scale)
    return tuple(map(_like, (query, key, value), found))


def _efficient(
    query, key, value, bias, compute_log_sumexp, dropout_p=0.0, is_causal=False, *, scale=None
):
    """Values of smaller heads are widened with zeros, which stay zeros."""
    assert bias is None
    op = _aten._scaled_dot_product_flash_attention_for_cpu
    out, logsumexp = op(query, key, _widened(value, query), dropout_p, is_causal, scale=scale)
    state = torch.zeros((), dtype=torch.int64)
    values = out[..., : value.shape[-1]]
    rows = values.transpose(1, 2).contiguous().transpose(1, 2)
    return rows, logsumexp.contiguous(), state, state.clone()


def _efficient_backward(
    grad_out, query, key, value, bias, out, logsumexp, philox_seed, philox_offset, dropout_p,
    wanted, is_causal=False, *, scale=None,
):  # fmt: skip
    op = _aten._scaled_dot_product_flash_attention_for_cpu_backward
    grad_out, wide, out = (_widened(item, query) for item in (grad_out, value, out))
    found = op(grad_out, query, key, wide, out, logsumexp, dropout_p, is_causal, scale=scale)
    to_value = found[2][..., : value.shape[-1]]
    return *map(_like, (query, key, value), (*found[:2], to_value)), None


def _widened(values, query):
    return torch.nn.functional.pad(values, (0, query.shape[-1] - values.shape[-1]))


def _histogram(values, bins=100, min=0, max=0):
    assert min < max
    op = _aten.histogram.bin_ct
    return op(values.double(), bins, range=(float(min), float(max)))[0].to(values.dtype)


def _norm(x, shape, weight=None, eps=None):
    return _aten._fused_rms_norm(x, shape, weight, eps)[0]


def _rms_norm(x, shape, weight, eps):
    axes = tuple(range(-len(shape), 0))
    scale = torch.rsqrt(x.float().pow(2).mean(axes, keepdim=True) + eps)
    normal = (x * scale).to(x.dtype)
    return (normal if weight is None else normal * weight), scale


def _rms_norm_backward(grad, x, shape, scale, weight, wanted):
    axes = tuple(range(-len(shape), 0))
    normal = x * scale
    inner = grad if weight is None else grad * weight
    to_x = (inner - normal * (inner * normal).mean(axes, keepdim=True)) * scale
    to_weight = (grad * normal).sum(tuple(range(x.dim() - len(shape))))
    return to_x.to(x.dtype), to_weight.to(x.dtype) if wanted[1] else None


_KERNELS = {
    "attention": (
        ("_scaled_dot_product_flash_attention", _flash, ("CPU",)),
        ("_scaled_dot_product_flash_attention_backward", _flash_backward, ("CPU",)),
        ("_scaled_dot_product_efficient_attention", _efficient, ("CPU",)),
        ("_scaled_dot_product_efficient_attention_backward", _efficient_backward, ("CPU",)),
        ("scaled_dot_product_attention", _attention, ("AutogradCPU", "CPU")),
    ),
    "histogram": (("histc", _histogram, ("CPU",)),),
    "norm": (
        ("_fused_rms_norm", _rms_norm, ("CPU",)),
        ("_fused_rms_norm_backward", _rms_norm_backward, ("CPU",)),
        ("rms_norm", _norm, ("AutogradCPU", "CPU")),
    ),
}
