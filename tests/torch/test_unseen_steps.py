"""Steps that use what language models do not: each was refused or written down wrongly once."""

from __future__ import annotations

import torch

from tests.torch.in_child import recorded


def sharded_rows(mesh):
    from torch.distributed.tensor import DTensor, Shard

    local = torch.ones(8, 16, device=mesh.device_type)
    return (DTensor.from_local(local, mesh, [Shard(0)], run_check=False),)


def redistribute(x):
    from torch.distributed.tensor import Shard

    return x.redistribute(placements=[Shard(1)]).to_local()


def test_other_shards_of_a_dtensor_are_an_exchange_among_its_ranks():
    """Of 32 rows of 16 each of 4 ranks has 8 rows, and gets 4 columns: one all-to-all."""
    recording = recorded(redistribute, sharded_rows, (4,), ("x",))
    [op] = [op for op in recording.ops if op.group >= 0]
    assert op.name == "_dtensor.shard_dim_alltoall.default"
    assert recording.groups[op.group].ranks == (0, 1, 2, 3)
    assert [view.shape for view in op.results] == [(32, 4)]
