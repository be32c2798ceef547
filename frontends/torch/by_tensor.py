"""Notes about tensors, found by a tensor or by its storage.

The idea: most ops write to storages without notes, and of the others few tensors share one, however
many notes there are.  So each storage's address has references to its tensors; an address may be
reused, and a tensor forgotten, so a match is verified.

    noted = ByTensor(); noted[counts] = 1
    noted.sharing(counts[2:])           # [counts]
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary

#: References of a storage before those to tensors that are gone are dropped.
_FEW = 16


class ByTensor(WeakTensorKeyDictionary):
    """A dictionary whose keys are tensors, which it does not keep alive."""

    def __init__(self) -> None:
        """Nothing is noted."""
        super().__init__()
        self._of: dict[int, list[TensorWeakRef]] = {}
        self._most: dict[int, int] = {}

    def __setitem__(self, tensor: torch.Tensor, what: Any) -> None:
        is_new = tensor not in self
        super().__setitem__(tensor, what)
        if is_new:
            storage = tensor.untyped_storage()._cdata
            references = self._of.setdefault(storage, [])
            references.append(TensorWeakRef(tensor))
            if len(references) > self._most.get(storage, _FEW):
                self.sharing(tensor)

    def sharing(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors that share a tensor's storage."""
        storage = tensor.untyped_storage()._cdata
        references = self._of.get(storage)
        if references is None:
            return []
        every = {id(item): item for item in (one() for one in references) if item is not None}
        found = [
            item
            for item in every.values()
            if item in self and item.untyped_storage()._cdata == storage
        ]
        if found:
            self._of[storage] = [TensorWeakRef(item) for item in found]
            self._most[storage] = max(_FEW, 2 * len(found))
        else:
            del self._of[storage]
            self._most.pop(storage, None)
        return found
