"""The Python functions of a program's own ops.

The idea: the dispatcher sees one op of ``torch.library.custom_op``, of which PyTorch knows types
and shapes.  What it computes is its function for GPUs: where that calls PyTorch, the op's FLOPs are
those of what it calls.

    function_of("nanogpt.mm.default")      # None where the op is not of this kind

PyTorch keeps these functions in private tables (2.12 to 2.14).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._library.custom_ops import OPDEFS

#: PyTorch makes its own primitives in the same way; their functions call ops made of them.
_TORCHS = ("prims",)


def function_of(name: str) -> Callable[..., Any] | None:
    """The function of "namespace.op.overload" for GPUs, or None."""
    namespace, base, *_ = name.split(".")
    made = None if namespace in _TORCHS else OPDEFS.get(f"{namespace}::{base}")
    kernels = getattr(made, "_backend_fns", {})
    found: Callable[..., Any] | None = kernels.get("cuda", kernels.get(None))
    return found
