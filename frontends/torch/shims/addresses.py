"""Addresses of tensors that have no memory.

The idea: programs and PyTorch's Python compare addresses to find whether tensors share memory, and
whether they have any: FullyShardedDataParallel does for each weight that it gathers and frees,
packages do for weights that are tied.  A fake tensor's address would be its offset.  It is the
storage's here, which is one object for all that share it, and 0 if it has been freed.

    weight.data_ptr() == weight[0].data_ptr() != other.data_ptr()
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from flint.frontends.torch.patching import around, replace

#: Storages are objects of about a hundred bytes; so far apart, most tensors do not overlap.
_APART = 1 << 16


def apply() -> None:
    """Give fake tensors and their storages addresses."""
    around(torch.UntypedStorage, "data_ptr", _of_storage)
    replace(FakeTensor, "data_ptr", _of_tensor)


def _of_storage(original: Any, storage: Any) -> int:
    found: int = original(storage)
    return found or (storage._cdata * _APART if storage.nbytes() else 0)


def _of_tensor(tensor: Any) -> int:
    start: int = tensor.untyped_storage().data_ptr()
    return start and start + tensor.storage_offset() * tensor.element_size()
