"""The Python functions of a program's own ops.

The idea: the dispatcher sees one op of ``torch.library.custom_op``, of which PyTorch knows types
and shapes.  What it computes is its function for GPUs: where that calls PyTorch, the op's FLOPs are
those of what it calls.

    function_of("nanogpt.mm.default")      # None where the op is not of this kind

PyTorch keeps these functions in private tables (2.12 to 2.14).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._library.custom_ops import OPDEFS

from flint.frontends.torch.lowerings.calls import Unsupported

#: PyTorch makes its own primitives in the same way; their functions call ops made of them.
_TORCHS = ("prims",)


def function_of(name: str) -> Callable[..., Any] | None:
    """The function of "namespace.op.overload" for GPUs, or None.

    It raises Unsupported where it does more than to call ops.
    """
    namespace, base, *_ = name.split(".")
    made = None if namespace in _TORCHS else OPDEFS.get(f"{namespace}::{base}")
    kernels = getattr(made, "_backend_fns", {})
    function = kernels.get("cuda", kernels.get(None))
    return None if function is None else functools.partial(_called, name, function)


def _called(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except Unsupported:
        raise
    except Exception as error:
        what = (str(error).splitlines() or [""])[0][:80]
        raise Unsupported(f"{name}: its function fails on shapes alone ({what})") from error
