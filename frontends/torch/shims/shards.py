"""Which ranks have smaller shards of distributed tensors, or none.

The idea: a size that does not divide evenly gives the last places of a mesh's dim smaller shards,
or none.  Which places those are follows from the tensor's size: of 251 rows over 4 places each has
63, the last
62.  Parameters, batches and results computed from them are treated alike.

    note(tensor)       # 16 rows over 64 ranks: ranks 0-15 have one, the others none
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from flint.frontends.torch.context import capture
from flint.frontends.torch.shims.places import membership, note_families


def note(tensor: Any) -> None:
    """Note at which ranks shards of a distributed tensor change their size."""
    if not isinstance(tensor, DTensor) or tensor.device_mesh.get_coordinate() is None:
        return
    mesh, left = tensor.device_mesh, list(tensor.shape)
    seen = capture().shards_noted
    key = (id(mesh), tensor.placements, tuple(left))
    if key in seen:
        return
    seen[key] = mesh  # which keeps its id
    for number in _order(tensor):
        placement: Any = tensor.placements[number]
        size, parts = left[placement.dim], mesh.size(number)
        left[placement.dim] = -(-size // parts)
        if size % parts:
            _note_dim(mesh, number, size, left[placement.dim])


def note_all(modules: Iterable[torch.nn.Module]) -> None:
    """Note the evidence from modules' parameters and from groups created at one line."""
    for module in modules:
        for parameter in module.parameters(recurse=False):
            note(parameter)
    note_families()


def _note_dim(mesh: Any, number: int, size: int, each: int) -> None:
    """What does not divide evenly over one dim of a mesh: the first places have ``each``."""
    found = membership(mesh.get_group(number))
    if found is not None:
        own = np.clip(size - found.place * each, 0, each)
        where = f"shards of {size:,} over {mesh.size(number):,}"
        capture().evidence.add(where, np.where(found.place < 0, -1, own))


def _order(tensor: DTensor) -> list[int]:
    """Mesh dims over which a tensor is split, in the order of splitting.

    FSDP splits tensors that tensor parallelism has split before, though its mesh dim comes first:
    such placements are strided shards.
    """
    numbers = range(len(tensor.placements))
    plain = [n for n in numbers if type(tensor.placements[n]) is Shard]
    return plain + [n for n in reversed(numbers) if type(tensor.placements[n]) is _StridedShard]
