"""Functional collectives that are waited for when their result is used.

What DTensor and ``torch.distributed._functional_collectives`` return waits for the collective at
its first use.  Under fake tensors PyTorch assumes that it is compiling and waits at once: the
stream would stop although a real run continues.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import _functional_collectives as collectives

from flint.frontends.torch.patching import replace


class _Wrapped(torch.autograd.Function):
    """A collective's result that waits when it is used; gradients pass unchanged."""

    @staticmethod
    def forward(_: Any, tensor: torch.Tensor) -> torch.Tensor:
        kind: Any = collectives.AsyncCollectiveTensor
        wrapped: torch.Tensor = kind(tensor)
        return wrapped

    @staticmethod
    def backward(_: Any, *gradients: Any) -> Any:
        return gradients[0]


def apply() -> None:
    """Let results of functional collectives wait when they are used."""
    wrapped: Any = _Wrapped
    replace(collectives, "_maybe_wrap_tensor", wrapped.apply)
