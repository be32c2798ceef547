"""FSDP's shards.

``fully_shard`` cuts every parameter into the shards of all ranks and keeps one: with thousands of
ranks and hundreds of parameters that takes minutes.  Here a shard is cut when it is asked for.
"""

from __future__ import annotations

from typing import Any

import torch


class Chunks:
    """``list(torch.chunk(tensor, count, dim))`` with empty ones at the end, made when asked for."""

    def __init__(self, tensor: torch.Tensor, count: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, count, dim
        # As torch.chunk does: all of ceil(size / count), but for the last ones.
        self._size = -(-tensor.size(dim) // count) if count else 0

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


def apply() -> None:
    """Cut FSDP's shards when they are asked for."""
    from torch.distributed.fsdp._fully_shard import _fsdp_common, _fsdp_param

    def chunk_with_empty(tensor: torch.Tensor, num_chunks: int, dim: int) -> Any:
        return Chunks(tensor, num_chunks, dim)

    modules: tuple[Any, ...] = (_fsdp_common, _fsdp_param)
    for module in modules:
        module._chunk_with_empty = chunk_with_empty
