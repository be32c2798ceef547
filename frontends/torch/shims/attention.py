"""Scaled dot product attention as fused kernels.

On a custom device PyTorch would decompose attention into matrix products.  On a GPU it picks a
kernel by the arguments (``can_use_*_attention`` in aten/src/ATen/native/transformers/cuda/
sdp_utils.cpp), the first of these that takes them and that the user has not switched off:

- cuDNN's, on Hopper and Blackwell (``check_prefer_cudnn_attention``; since PyTorch 2.11, whose
  wheels have cuDNN 9.15 or later), for half precision, also with a mask, unless that needs a
  gradient;
- flash attention, for half precision without a mask;
- the memory-efficient one, for a mask, single precision, or values of another size than queries.

None of them takes a tensor whose last dim is not contiguous, or sizes that are only broadcast (keys
of one head for queries of many, unless the call says ``enable_gqa``; before PyTorch 2.14 the
memory-efficient one takes no groups either): then products and a softmax run.
A program has another order by ``sdpa_kernel([...], set_priority=True)``, a user by
TORCH_CUDNN_SDPA_DEPRIORITIZED=1, which puts cuDNN's last.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend

from flint.frontends.torch.patching import register_kernels

#: Largest head that flash attention takes (its CUDA kernels').
_FLASH_HEAD = 256
#: Devices on which PyTorch asks cuDNN first.
_CUDNN_FIRST = ((9, 0), (10, 0))
#: Largest head that cuDNN's kernels take: on Hopper, elsewhere.
_CUDNN_HEAD = 256, 128
#: Whether all kernels take queries in groups, and one head of keys for all queries' heads
#: (pytorch/pytorch#191085).
_ANY_GROUPS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)
#: Orders of kernels: PyTorch's own, and with cuDNN first.
_CUDNN, _FLASH = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION
_EFFICIENT, _MATH = SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH
_PLAIN = (_FLASH, _EFFICIENT, _MATH, _CUDNN)
#: Kernels of devices that are not part of PyTorch.
_OUTSIDE = SDPBackend.OVERRIDEABLE
_BACKENDS = {backend.value: backend for backend in (*_PLAIN, _OUTSIDE)}
_C: Any = torch._C
_SWITCHES: Any = torch.backends.cuda


def apply() -> None:
    """Give the recording device its attention kernels."""
    order = _set_order()
    if order == [*_PLAIN, _OUTSIDE]:
        # No program's own order begins with the kernels of devices outside of PyTorch: it stands
        # for the device's, and comes back when a program's ends.
        _C._set_sdp_priority_order([_OUTSIDE.value, *(backend.value for backend in _PLAIN)])
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        register_kernels("aten", key, {"scaled_dot_product_attention": on_device})


@dataclass(frozen=True, slots=True)
class _Call:
    """Arguments of ``scaled_dot_product_attention``."""

    query: Any
    key: Any
    value: Any
    mask: Any
    dropout: float
    causal: bool
    scale: float | None
    grouped: bool

    @property
    def half(self) -> bool:
        """Whether it computes in half precision."""
        return self.query.dtype in (torch.float16, torch.bfloat16)

    @property
    def dense(self) -> bool:
        """Whether fused kernels can read all its tensors."""
        tensors = self.query, self.key, self.value
        return (
            all(item.dim() == 4 and item.dtype == self.query.dtype for item in tensors)
            and self.query.shape[-2] > 0 < self.key.shape[-2]
            and self.query.shape[0] == self.key.shape[0] == self.value.shape[0]
            and all(
                item.stride(-1) == 1 or item.shape[-1] == 1
                for item in (*tensors, *([] if self.mask is None else [self.mask]))
            )
        )

    @property
    def heads(self) -> tuple[int, int, int]:
        """Heads of queries, keys and values."""
        return self.query.shape[-3], self.key.shape[-3], self.value.shape[-3]

    def pairs(self, groups: bool = True) -> bool:
        """Whether kernels can pair queries' heads with those of keys and values.

        Args:
            groups: whether they take groups of queries.
        """
        queries, keys, values = self.heads
        if self.grouped and groups:
            return keys == values and queries % keys == 0
        return queries == keys == values or (_ANY_GROUPS and keys == values == 1)

    @property
    def needs_gradients(self) -> bool:
        """Whether a backward pass may follow."""
        tensors = self.query, self.key, self.value
        return torch.is_grad_enabled() and any(item.requires_grad for item in tensors)

    def added(self) -> Any:
        """What is added to scores for the mask: 0 or -inf in place of a bool; None without one."""
        mask, query = self.mask, self.query
        if mask is None or mask.dtype != torch.bool:
            return mask
        hidden = torch.scalar_tensor(-math.inf, dtype=query.dtype, device=query.device)
        return torch.where(mask, 0.0, hidden)


def on_device(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Attention by the kernel that a GPU would use; arguments as PyTorch's function."""
    call = _Call(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    kernel = next((_RUNS[backend] for backend in _order() if _TAKES[backend](call)), _math)
    return kernel(call)


def _set_order() -> list[SDPBackend]:
    """The order that is set."""
    return [_BACKENDS[number] for number in _C._get_sdp_priority_order()]


def _order() -> list[SDPBackend]:
    """The order in which a GPU is asked for kernels: the program's, or else the device's own."""
    order = _set_order()
    if order[0] == _OUTSIDE:
        later = os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1"
        first = torch.cuda.get_device_capability() in _CUDNN_FIRST and not later
        order = [_CUDNN, *_PLAIN] if first else [*_PLAIN]
    return [backend for backend in order if backend in _RUNS]


def _cudnn_takes(call: _Call) -> bool:
    query, key, value = call.query, call.key, call.value
    hopper, other = _CUDNN_HEAD
    most = hopper if torch.cuda.get_device_capability() == (9, 0) else other
    return bool(
        _SWITCHES.cudnn_sdp_enabled()
        and call.dense
        and call.pairs()
        and call.half
        and not torch.are_deterministic_algorithms_enabled()
        and max(query.shape[-1], value.shape[-1]) <= most
        and query.shape[-1] % 8 == value.shape[-1] % 8 == 0
        and key.shape[-2] > 1
        and not (query.shape[-2] == 1 and call.dropout > 0)
        and not (call.mask is not None and call.mask.requires_grad)
    )


def _flash_takes(call: _Call) -> bool:
    same = call.value.shape[-1] == call.query.shape[-1] <= _FLASH_HEAD
    # Its causal mask ends at the last query and the last key, PyTorch's begins at the first.
    square = not call.causal or call.query.shape[-2] == call.key.shape[-2]
    return bool(
        _SWITCHES.flash_sdp_enabled()
        and call.dense
        and call.pairs()
        and call.half
        and same
        and square
        and call.mask is None
    )


def _efficient_takes(call: _Call) -> bool:
    aligned = 8 if call.half else 4  # elements: 16 bytes, as tensor cores read them
    return bool(
        _SWITCHES.mem_efficient_sdp_enabled()
        and call.dense
        and call.pairs(groups=_ANY_GROUPS)
        and (call.half or call.query.dtype == torch.float32)
        and call.query.shape[-1] % aligned == call.value.shape[-1] % aligned == 0
    )


def _math_takes(_: _Call) -> bool:
    return bool(_SWITCHES.math_sdp_enabled())


def _cudnn(call: _Call) -> Any:
    return torch.ops.aten._scaled_dot_product_cudnn_attention(
        call.query, call.key, call.value, call.added(), call.needs_gradients, call.dropout,
        call.causal, False, scale=call.scale,
    )[0]  # fmt: skip


def _flash(call: _Call) -> Any:
    return torch.ops.aten._scaled_dot_product_flash_attention(
        call.query, call.key, call.value, call.dropout, call.causal, False, scale=call.scale
    )[0]


def _efficient(call: _Call) -> Any:
    query, key, value, mask = call.query, call.key, call.value, call.added()
    heads, keys, _ = call.heads
    if keys == 1 < heads:
        key, value = (item.expand(-1, heads, -1, -1) for item in (key, value))
    elif keys != heads:
        key, value = (item.repeat_interleave(heads // keys, -3) for item in (key, value))
    if mask is not None:
        mask = mask.expand(*query.shape[:-1], key.shape[-2])
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, call.needs_gradients, call.dropout, call.causal, scale=call.scale
    )[0]


def _math(call: _Call) -> Any:
    return torch.ops.aten._scaled_dot_product_attention_math(
        call.query, call.key, call.value, call.mask, call.dropout, call.causal, None,
        scale=call.scale, enable_gqa=call.grouped,
    )[0]  # fmt: skip


#: Kernels, and whether they take a call.
_RUNS: dict[SDPBackend, Callable[[_Call], Any]] = {
    _CUDNN: _cudnn, _FLASH: _flash, _EFFICIENT: _efficient, _MATH: _math,
}  # fmt: skip
_TAKES: dict[SDPBackend, Callable[[_Call], bool]] = {
    _CUDNN: _cudnn_takes, _FLASH: _flash_takes, _EFFICIENT: _efficient_takes, _MATH: _math_takes,
}  # fmt: skip
#: Ops that the recording device has as one kernel, though PyTorch decomposes them below autograd.
WHOLE = {torch.ops.aten.scaled_dot_product_attention.default: on_device}
