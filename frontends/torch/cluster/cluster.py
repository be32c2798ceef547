"""A fake cluster: one process acts as any rank of any number of ranks.

The idea: PyTorch's fake process group answers every collective at once.  With it, and with the
environment variables that launchers set, a program acts as one rank of a running job; only the
rank's own view of the mesh is real.

    mesh = start(rank=3, shape=(64, 8), axes=("dp", "tp"), device="flint")
"""

from __future__ import annotations

import math
import os
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from flint.errors import FlintError, UsageError
from flint.launching.commands.variables import variables

#: Ranks per host, from which LOCAL_RANK follows.
LOCAL_WORLD_SIZE = 8


def start(
    rank: int,
    shape: tuple[int, ...],
    axes: tuple[str, ...],
    device: str,
    per_host: int = LOCAL_WORLD_SIZE,
) -> DeviceMesh:
    """Become a rank of a fake cluster and create its mesh.

    Args:
        rank: of this process, row-major in the mesh.
        shape, axes: of the mesh.
        device: device type of the mesh.
        per_host: ranks per host, for LOCAL_RANK.

    Raises:
        UsageError: a rank outside the mesh.
        FlintError: the process is already part of a real group.
    """
    world_size = math.prod(shape)
    if not 0 <= rank < world_size:
        raise UsageError(f"rank {rank} is outside the mesh of {world_size} ranks")
    if dist.is_initialized():
        raise FlintError(
            "this process already has a process group: capture before init_process_group, or call "
            "init_process_group in setup only"
        )
    # A forked child lacks the threads of its parent's computations, but would wait for them.
    torch.set_num_threads(1)
    os.environ.update(variables("torchrun", rank, world=world_size, per_host=per_host))
    from torch.testing._internal.distributed.fake_pg import FakeStore

    store: Any = FakeStore()
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=store)
    return init_device_mesh(device, shape, mesh_dim_names=axes)


def stop() -> None:
    """Leave the cluster."""
    if dist.is_initialized():
        dist.destroy_process_group()
