"""Nested tensors of jagged layout: sequences of different lengths, one after another.

The idea: such a tensor is Python around two others, the values of all sequences and where each
begins.  PyTorch turns every op on it into ops on those two, which are recorded like any other.  The
size that its sequences do not share is a symbol, kept with the beginnings: a copy of these on the
device has that of the original.  For fake tensors PyTorch makes symbols that its compiler needs; in
a capture, all have those of a run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nested._internal import nested_tensor, sdpa
from torch.nested._internal.nested_int import NestedIntNode
from torch.nn.attention import SDPBackend

from flint.frontends.torch.patching import around, replace


def apply() -> None:
    """Keep symbols of fake tensors as those of real ones are kept; attention by a GPU's kernels."""
    replace(FakeTensorMode, "create_symbolic_nested_int", _new_symbol)
    for kind in (torch.Tensor, FakeTensor):
        setattr(kind, "nested_int_memo", property(_symbol_of, _keep_symbol))  # noqa: B010
    around(sdpa, "_select_sdp_backend", _kernel)


def _new_symbol(_: Any, *, nt_tensor_id: int | None = None) -> Any:
    if nt_tensor_id is None:
        nt_tensor_id = nested_tensor._tensor_id_counter
        nested_tensor._tensor_id_counter += 1
    make: Any = torch.SymInt
    return make(NestedIntNode(nt_tensor_id, 1))


def _symbol_of(beginnings: torch.Tensor) -> Any:
    kept: Any = nested_tensor._tensor_symint_registry
    return kept.get(beginnings)


def _keep_symbol(beginnings: torch.Tensor, symbol: Any) -> None:
    if symbol is not None:
        nested_tensor._tensor_symint_registry[beginnings] = symbol


def _kernel(choose: Any, query: Any, key: Any, value: Any, mask: Any, *options: Any) -> Any:
    """The kernel of an attention, which PyTorch asks of a device that is not a GPU in vain."""
    if not isinstance(query._values, FakeTensor):
        return choose(query, key, value, mask, *options)
    half = query.dtype in (torch.float16, torch.bfloat16)
    return SDPBackend.FLASH_ATTENTION if half and mask is None else SDPBackend.EFFICIENT_ATTENTION
