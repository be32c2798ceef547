"""Tensors of the memory of NumPy's arrays that follow from the rank: ``torch.from_numpy(array)``.

The idea: PyTorch makes such a tensor out of sight of its modes.  It holds what the array does.

    apply(); torch.from_numpy(np.array([rank])).item()        # follows from the rank
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from flint.frontends.torch.shims.own_calls import holding
from flint.frontends.torch.shims.own_tensors import is_small, keep


def apply() -> None:
    """Replace ``torch.from_numpy``."""
    torch.from_numpy = shared(torch.from_numpy)


def shared(plain: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.from_numpy`` in its place."""

    @functools.wraps(plain)
    def from_numpy(array: Any) -> torch.Tensor:
        tensor: torch.Tensor = plain(array)
        held = holding(array)
        if held is not None and is_small(tensor):
            values = (None if item is None else plain(item) for item in held.values)
            keep(tensor, replace(held, values=tuple(values)))
        return tensor

    return from_numpy
