"""Moving modules of fake parameters: ``to_empty``, ``.to(device)``, ``.cuda()``.

A module swaps the contents of such parameters, and refuses to when something refers to them weakly.
Fake tensors are always referred to so, by the memory of what was converted, which keeps nothing
that the swap could invalidate.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor


def apply() -> None:
    """Let modules of fake parameters be moved."""
    utils: Any = torch.utils
    original = utils.swap_tensors
    weakrefs = utils.weakref
    blind = SimpleNamespace(getweakrefs=lambda _: [])

    def swap_tensors(first: torch.Tensor, second: torch.Tensor) -> None:
        fake = isinstance(first, FakeTensor) and isinstance(second, FakeTensor)
        utils.weakref = blind if fake else weakrefs
        try:
            original(first, second)
        finally:
            utils.weakref = weakrefs

    utils.swap_tensors = swap_tensors
