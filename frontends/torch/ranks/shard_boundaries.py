"""Where along the mesh shards of tensors change their size.

The idea: what does not divide evenly gives the last ranks of a mesh axis smaller shards, or none.
Which places those are follows from the tensors' sizes: of 251 rows over 4 ranks each has 63, the
last 62.  This says which ranks to record; what they do is read from their recordings.

    breaks(model.parameters(), ("dp", "tp"))      # {"dp": (63,)}: from place 63 on it is different
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard


def breaks(tensors: Iterable[torch.Tensor], axes: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Places along mesh axes where shards change their size.

    Args:
        tensors: of which the distributed ones count.
        axes: of the captured mesh; what is split over others (flattened ones, say) is left out.
    """
    found: dict[str, set[int]] = {axis: set() for axis in axes}
    for tensor in tensors:
        if not isinstance(tensor, DTensor):
            continue
        names = tensor.device_mesh.mesh_dim_names or ()
        left = list(tensor.shape)
        for number in _order(tensor):
            placement: Any = tensor.placements[number]
            dim, parts = placement.dim, tensor.device_mesh.size(number)
            size = left[dim]
            left[dim] = -(-size // parts)
            if number < len(names) and names[number] in found and left[dim]:
                ends = {size // left[dim], -(-size // left[dim])}
                found[names[number]] |= {end for end in ends if 0 < end < parts}
    return {axis: tuple(sorted(places)) for axis, places in found.items() if places}


def _order(tensor: DTensor) -> list[int]:
    """Mesh dims over which a tensor is split, in the order of splitting.

    FSDP splits what tensor parallelism has split before, though its mesh dim comes first: such
    placements are strided shards.
    """
    numbers = range(len(tensor.placements))
    plain = [n for n in numbers if type(tensor.placements[n]) is Shard]
    return plain + [n for n in reversed(numbers) if type(tensor.placements[n]) is _StridedShard]
