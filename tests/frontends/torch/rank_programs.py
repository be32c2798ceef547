"""Steps whose ranks do different things, or only seem to; for ``test_every_rank.py``.

Each is a step and its setup.  "Alike" are those that do the same on every rank.

Longer than 300 lines because it is one table of steps, which more than one test takes from here.
"""

from __future__ import annotations

import math
import os

import torch
import torch.distributed as dist
from torch import nn


def vector(mesh):
    return mesh, torch.randn(8, 8, device=mesh.device_type)


def sharded(mesh):
    """FSDP over the first axis, whose size does not divide the rows."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(16, 6), nn.LayerNorm(6))
    from torch.distributed.fsdp import fully_shard

    fully_shard(model, mesh=mesh[mesh.mesh_dim_names[0]])
    model.to_empty(device=mesh.device_type)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return mesh, model, optimizer, torch.randn(4, 16, device=mesh.device_type)


def train(model, optimizer, x):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


# what only seems to differ


def log_on_rank_0(mesh, model, optimizer, x):
    train(model, optimizer, x)
    if dist.get_rank() == 0:
        "step done"


def log_unless_rank(mesh, model, optimizer, x):
    train(model, optimizer, x)
    if not dist.get_rank():
        "step done"


def log_on_local_rank_0(mesh, model, optimizer, x):
    train(model, optimizer, x)
    if int(os.environ["LOCAL_RANK"]) == 0 or os.environ.get("RANK") == "3":
        "step done"


def log_on_the_last(mesh, model, optimizer, x):
    train(model, optimizer, x)
    if dist.get_rank() == dist.get_world_size() - 1:
        "step done"


def log_per_group(mesh, model, optimizer, x):
    group = mesh.get_group(1)
    train(model, optimizer, x)
    if dist.get_rank() == dist.get_global_rank(group, 0):
        "first of my group"
    if dist.get_process_group_ranks(group)[-1] == dist.get_rank():
        "last of my group"


def seeded(mesh, x):
    rank = dist.get_rank()
    torch.manual_seed(1234 + rank)
    torch.cuda.manual_seed(rank)
    torch.Generator().manual_seed((rank + 0x9E3779B97F4A7C15) % 2**64)
    return x + torch.rand_like(x)


def rank_as_data(mesh, x):
    rank = dist.get_rank()
    tag = torch.full((4,), rank, device=x.device)
    return x * rank, tag + torch.tensor(rank, device=x.device), x.roll(rank, 0)


def slices(mesh, x):
    rank = dist.get_rank()
    rows = x[rank % 8 : rank % 8 + 1]
    return rows @ x.narrow(1, 2 * (rank % 4), 2)


# what differs


def every_eighth(mesh, model, optimizer, x):
    train(model, optimizer, x)
    if dist.get_rank() % 8 == 0:
        x @ x.t()


def first_half(mesh, model, optimizer, x):
    train(model, optimizer, x)
    if dist.get_rank() < dist.get_world_size() // 2:
        x @ x.t()


def by_fractions(mesh, x):
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank / world >= 0.25 and math.floor(rank / 4) != 2 and -rank > -30:
        x = x @ x
    host, local = divmod(rank, 8)
    if local ^ 1 == 4 and host << 2 == 4:
        x = x + 1
    return x * 2


def checkpoint_on_dp_0(mesh, model, optimizer, x):
    train(model, optimizer, x)
    if mesh[mesh.mesh_dim_names[0]].get_local_rank() == 0:
        [item.to_local().cpu() for item in model.parameters()]


def members_of_lists(mesh, x):
    rank = dist.get_rank()
    x = x @ x if rank in range(0, 32, 4) else x
    x = x + 1 if rank in [3, 5, 7] else x
    return x * 2 if rank % 8 in {2, 5} else x * 2 - 1


def table_of_stages(mesh, x):
    return {0: lambda: x @ x, 1: lambda: x + x, 2: lambda: x * 2, 3: lambda: x.sum()}[
        dist.get_rank() // 8
    ]()


def node_leaders(mesh, x):
    leaders = list(range(0, dist.get_world_size(), 8))
    group = dist.new_group(leaders)
    dist.all_reduce(x)
    if dist.get_rank() in leaders:
        dist.all_reduce(x, group=group)
    if int(os.environ["LOCAL_RANK"]) == 7:
        x @ x


def groups_by_lists(mesh, x):
    """As trainers do that know no meshes: every rank makes all groups and keeps its own."""
    mine = None
    for first in range(0, dist.get_world_size(), 4):
        ranks = list(range(first, first + 4))
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = group
    dist.all_reduce(x, group=mine)
    if dist.get_rank(mine) == 2:
        x @ x


def odd_groups(mesh, x):
    """Groups of five and eleven that do not tile: 0-4, 5-15, 16-20, 21-31."""
    mine = None
    for ranks in (range(5), range(5, 16), range(16, 21), range(21, 32)):
        group = dist.new_group(ranks)
        if dist.get_rank() in ranks:
            mine = group
    dist.all_reduce(x, group=mine)
    if dist.get_rank(mine) == 1:
        x @ x
    if dist.get_world_size(mine) == 5:
        x + x


def first_of_each_group(mesh, x):
    group = mesh.get_group(1)
    ranks = dist.get_process_group_ranks(group)
    if ranks[0] == dist.get_rank():
        x @ x
    if dist.get_rank() == dist.get_global_rank(group, 3):
        x + x
    if dist.get_group_rank(group, dist.get_rank()) == 2:
        x * x
    if dist.get_group_rank(group, ranks[-1]) == 3:
        x - x


def part_of_the_ranks(mesh):
    from torch.distributed.device_mesh import DeviceMesh

    return DeviceMesh(mesh.device_type, list(range(6))), torch.randn(8, 8, device=mesh.device_type)


def among_members(own, x):
    if own.get_coordinate() is not None:
        dist.all_reduce(x, group=own.get_group())
    return x * 2


def uneven_rows(mesh, x):
    """23 rows over 32 ranks, two each; by slices, whose sizes no comparison shows."""
    rank = dist.get_rank()
    rows = torch.cat([x, x, x])[:23]
    first = rows[2 * rank : 2 * rank + 2] @ x
    second = rows.narrow(0, 0, 1 + rank // 16) @ x
    return first, second, rows.chunk(8)[rank % 8] @ x


def uneven_batch(mesh, x):
    """A batch of 13 rows over the second axis, 4, 4, 4 and 1, and what is computed from it."""
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    rows = torch.randn(13, 8, device=x.device)
    rows = distribute_tensor(rows, mesh["tp"], [Shard(0)], src_data_rank=None)
    weight = distribute_tensor(x, mesh["tp"], [Replicate()], src_data_rank=None)
    return (rows @ weight).to_local() * 2


def a_loop_of_ranks(mesh, x):
    for rank in range(dist.get_world_size()):
        if dist.get_rank() == rank and rank in (3, 9):
            x = x @ x
    return x * 2


def roots(mesh, x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.gather(x, parts if dist.get_rank() == 5 else None, dst=5)
    return x * 2


def ring(mesh, x):
    """To the next along the second axis, as ring attention does."""
    group, size = mesh.get_group(1), mesh.size(1)
    place = dist.get_rank(group)
    got = torch.empty_like(x)
    ops = [
        dist.P2POp(dist.isend, x, group=group, group_peer=(place + 1) % size),
        dist.P2POp(dist.irecv, got, group=group, group_peer=(place - 1) % size),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return x + got


# larger ones


def vocabulary(mesh):
    """13 rows of an embedding over the second axis, whose size is 4: 4, 4, 4 and 1."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module

    with torch.device(mesh.device_type):
        model = nn.Sequential(nn.Embedding(13, 8))
        tokens = torch.zeros(2, 4, dtype=torch.int64)
    plan = {"0": RowwiseParallel(input_layouts=Replicate())}
    parallelize_module(model, mesh[mesh.mesh_dim_names[1]], plan, src_data_rank=None)
    return mesh, model, tokens


def embed(mesh, model, tokens):
    model(tokens).sum().backward()
    if dist.get_rank() == 0:
        "step done"


def stages(mesh):
    """Two stages, each sharded unevenly over the second axis."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    stage = mesh["pp"].get_local_rank()
    with torch.device(mesh.device_type):
        model = nn.Linear(16, 16) if stage == 0 else nn.Sequential(nn.Linear(16, 16), nn.ReLU())
        x = torch.randn(4, 16)
    fully_shard(model, mesh=mesh["dp"])
    part = PipelineStage(model, stage, 2, x.device, group=mesh.get_group("pp"))
    return ScheduleGPipe(part, n_microbatches=2, loss_fn=lambda y, t: (y - t).sum()), stage, x


def staged(schedule, stage, x):
    if stage == 0:
        schedule.step(x)
    else:
        schedule.step(target=torch.zeros_like(x))
    if dist.get_rank() in (0, 17):
        "step done"
    if dist.get_rank() == 20:
        x + x


def replicated(mesh):
    """HSDP: 3 rows over 4 ranks, replicated over the rest."""
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(nn.Linear(8, 3, device=mesh.device_type), mesh=mesh)
    return mesh, model, torch.optim.SGD(model.parameters()), torch.randn(2, 8, device="cuda")


def hsdp(mesh, model, optimizer, x):
    log_on_rank_0(mesh, model, optimizer, x)


FLAT, FEW, GRID = ((32,), ("dp",)), ((16,), ("dp",)), ((8, 4), ("dp", "tp"))
#: Name -> step, setup, mesh, axes.
PROGRAMS = {
    step.__name__: (step, setup, *mesh)
    for step, setup, mesh in (
        (log_on_rank_0, sharded, FEW), (log_unless_rank, sharded, FLAT),
        (log_on_local_rank_0, sharded, FLAT), (log_on_the_last, sharded, FLAT),
        (log_per_group, sharded, GRID), (seeded, vector, FLAT), (rank_as_data, vector, FLAT),
        (slices, vector, FLAT), (every_eighth, sharded, FLAT), (first_half, sharded, FLAT),
        (by_fractions, vector, FLAT), (checkpoint_on_dp_0, sharded, GRID),
        (members_of_lists, vector, FLAT), (table_of_stages, vector, FLAT),
        (node_leaders, vector, FLAT), (groups_by_lists, vector, FLAT), (odd_groups, vector, FLAT),
        (first_of_each_group, vector, GRID), (among_members, part_of_the_ranks, FLAT),
        (uneven_rows, vector, FLAT), (uneven_batch, vector, GRID),
        (a_loop_of_ranks, vector, FLAT), (roots, vector, FLAT),
        (ring, vector, GRID), (embed, vocabulary, GRID),
        (staged, stages, ((2, 16), ("pp", "dp"))), (hsdp, replicated, GRID),
    )
}  # fmt: skip
