"""Foreach implementations for fake parameters.

Optimizers and gradient clipping take their foreach implementation, as they do on a GPU, only for
the tensor types that PyTorch lists; a parameter that is a fake tensor counts as one of another
type.
"""

from __future__ import annotations

from typing import Any

from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer
from torch.utils import _foreach_utils


def apply() -> None:
    """Let fake tensors count as tensors."""
    modules: tuple[Any, ...] = (optimizer, _foreach_utils)
    for module in modules:
        if FakeTensor not in module._foreach_supported_types:
            module._foreach_supported_types.append(FakeTensor)
