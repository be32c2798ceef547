"""FullyShardedDataParallel (FSDP1) without memory.

It uses memory addresses to find whether two tensors share memory, and whether they have any.  Fake
tensors have no addresses, but storages, which are identical if memory is shared and have no bytes
if it is freed.
"""

from __future__ import annotations

import torch

from flint.frontends.torch.patching import replace


def apply() -> None:
    """Answer questions about memory from storages."""
    from torch.distributed.fsdp import _flat_param

    replace(_flat_param, "_same_storage", _same_storage)
    replace(_flat_param, "_data_ptr_allocated", _is_allocated)


def _same_storage(first: torch.Tensor, second: torch.Tensor) -> bool:
    return bool(first.untyped_storage()._cdata == second.untyped_storage()._cdata)


def _is_allocated(tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().nbytes() > 0
