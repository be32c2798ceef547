"""``torch.distributed.split_group``: the parts of a group, without splitting a communicator.

The idea: PyTorch splits a communicator of NCCL's, which a fake group has none of.  The parts are
groups like any other.

    apply(); dist.split_group(split_ranks=[[0, 1], [2, 3]])        # on rank 2: the group of 2 and 3
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d

from flint.frontends.torch.everywhere import replace_everywhere
from flint.frontends.torch.patching import around


def apply() -> None:
    """Replace it."""
    plain = distributed_c10d.split_group
    around(distributed_c10d, "split_group", _split_group)
    replace_everywhere(plain, distributed_c10d.split_group)


def _split_group(
    original: Any, parent_pg: Any = None, split_ranks: Any = None, *_: Any, group_desc: Any = None,
    **__: Any,
) -> Any:  # fmt: skip
    """The own part; its ranks are places in the group that is split."""
    if not split_ranks:
        return original(parent_pg, split_ranks)  # an error
    parent: Any = parent_pg or dist.group.WORLD
    places = distributed_c10d._world.pg_group_ranks[parent]
    ranks = {place: rank for rank, place in places.items()}
    made = [
        distributed_c10d.new_group([ranks[place] for place in sorted(part)], group_desc=group_desc)
        for part in split_ranks
    ]
    return next((group for group in made if isinstance(group, dist.ProcessGroup)), None)
