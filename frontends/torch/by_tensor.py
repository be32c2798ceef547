"""Notes about tensors, found by a tensor or by its storage.

The idea: most ops write to storages without notes; a set of addresses shows this at once, however
many notes there are.  An address may be reused, so a match is verified.

    noted = ByTensor(); noted[counts] = 1
    noted.sharing(counts[2:])           # [counts]
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary


class ByTensor(WeakTensorKeyDictionary):
    """A dictionary whose keys are tensors, which it does not keep alive."""

    def __init__(self) -> None:
        """Nothing is noted."""
        super().__init__()
        self._storages: set[int] = set()

    def __setitem__(self, tensor: torch.Tensor, what: Any) -> None:
        super().__setitem__(tensor, what)
        self._storages.add(tensor.untyped_storage()._cdata)

    def sharing(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors that share a tensor's storage."""
        storage = tensor.untyped_storage()._cdata
        if storage not in self._storages:
            return []
        found = [item for item in self if item.untyped_storage()._cdata == storage]
        if not found:
            self._storages.discard(storage)
        return found
