"""Kernels that a GPU has for ops that PyTorch otherwise takes apart.

For a few ops the dispatcher has one kernel per backend and, for any backend without, a composition
of other ops: ``silu_backward`` would be recorded as seven kernels where a GPU launches one.  That
the recording device has a kernel of its own is all that is needed; it is never run, because fake
tensors know the results' shapes.

Which ops: those of ATen with a kernel for CUDA (native_functions.yaml) beside a
CompositeImplicitAutograd one that is not merely a fallback for quantized or nested tensors.
"""

from __future__ import annotations

from typing import Any

import torch

_FUSED = ("silu_backward", "mish_backward", "native_channel_shuffle", "_fused_rms_norm")

_library: Any = None
_new_library: Any = torch.library.Library


def apply() -> None:
    """Give the recording device its own kernels."""
    global _library
    _library = _new_library("aten", "IMPL")
    for name in _FUSED:
        _library.impl(name, _never_run, "PrivateUse1")


def _never_run(*_: Any, **__: Any) -> Any:
    raise RuntimeError("a kernel of the recording device was run")
