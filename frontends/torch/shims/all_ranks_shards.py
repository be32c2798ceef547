"""Avoidance of work over all ranks' shards of which PyTorch needs only one.

With thousands of ranks and hundreds of parameters it takes minutes.  ``fully_shard`` cuts every
parameter into the shards of all ranks and keeps one: here a shard is cut when it is asked for.
DTensor cuts every random tensor into the shards of all ranks to move the generator to where this
rank's begins: fake tensors have no values, so the generator does not move.  DTensor also runs ops
on fake tensors of global shapes to find their results, which no rank computes: these ops are hidden
from the recorder.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from flint.frontends.torch.modes import unseen
from flint.frontends.torch.patching import around, replace


def apply() -> None:
    """Avoid work over all ranks' shards."""
    from torch.distributed.fsdp._fully_shard import _fsdp_common, _fsdp_param
    from torch.distributed.tensor import _random, _sharding_prop

    for module in (_fsdp_common, _fsdp_param):
        replace(module, "_chunk_with_empty", Chunks)
    replace(_random.OffsetBasedRNGTracker, "_distribute_region", _nothing)
    around(_sharding_prop.ShardingPropagator, "_propagate_tensor_meta_non_cached", _hidden)


class Chunks:
    """``list(torch.chunk(tensor, count, dim))`` with empty ones at the end, created on demand."""

    def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, num_chunks, dim
        # As torch.chunk does: all of ceil(size / count), but for the last ones.
        self._size = -(-tensor.size(dim) // num_chunks) if num_chunks else 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        if not -self._count <= index < self._count:
            raise IndexError(index)
        length = self._tensor.size(self._dim)
        start = (index % self._count) * self._size
        if length == 0:
            return self._tensor if index % self._count == 0 else self._tensor.new_empty(0)
        if start >= length:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(self._size, length - start))


@contextlib.contextmanager
def _nothing(*_: Any, **__: Any) -> Iterator[None]:
    yield


def _hidden(original: Any, *args: Any, **kwargs: Any) -> Any:
    with unseen():
        return original(*args, **kwargs)
