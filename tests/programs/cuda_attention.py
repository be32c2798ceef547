"""Attention on the CPU by what CUDA would take, where that differs in what is counted."""

import contextlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

_ATTENTION = torch.nn.functional.scaled_dot_product_attention


def as_on_cuda(function, args, kwargs):
    """A context in which a function takes products for attention if CUDA has no kernel for it.

    None takes grouped heads in single precision (sdp_utils.cpp): flash attention is for half
    precision, the memory-efficient kernel has no groups.
    """
    if function is not _ATTENTION or not kwargs.get("enable_gqa"):
        return contextlib.nullcontext()
    single = args[0].dtype is torch.float32 and not torch.is_autocast_enabled("cpu")
    return sdpa_kernel(SDPBackend.MATH) if single else contextlib.nullcontext()
