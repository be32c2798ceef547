"""Numbers that are assigned to a part of a tensor: ``x[mask] = 0``.

For CPU and CUDA tensors PyTorch makes a CPU scalar of the number, which goes along with the kernel;
for other devices it first fills a scalar on the device, one kernel more.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from flint.frontends.torch.cluster.device import NAME


def apply() -> None:
    """Let numbers go along with the kernel that writes them."""
    kind: Any = torch.Tensor
    original = kind.__setitem__

    @functools.wraps(original)
    def assign(self: torch.Tensor, index: Any, value: Any) -> None:
        if isinstance(value, bool | int | float | complex) and self.device.type == NAME:
            value = torch.tensor(value, dtype=self.dtype, device="cpu")
        original(self, index, value)

    kind.__setitem__ = assign
