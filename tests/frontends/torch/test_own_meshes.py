"""Meshes of the program itself over fewer ranks, and messages from any sender."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from flint.errors import FlintError  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402


def on_the_first_two(mesh):
    """A mesh of ranks 0 and 1, and what is sharded over it."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Linear(8, 8, device=mesh.device_type)
    fully_shard(model, mesh=init_device_mesh(mesh.device_type, (2,), mesh_dim_names=("x",)))
    return model, torch.ones(2, 8, device=mesh.device_type)


def run_model(model, x):
    return model(x).sum()


def test_a_rank_outside_of_the_programs_own_mesh_is_told_which_ranks_are_in_it():
    with pytest.raises(FlintError, match=r"rank 3 is not in the mesh of 2 ranks \(0, 1\) .*--mesh"):
        record_in_child(run_model, on_the_first_two, (4,), ("dp",), 3)
    assert record_in_child(run_model, on_the_first_two, (4,), ("dp",), 1).ops


def among_members(mesh):
    """As PyTorch's documentation says: a rank that is not in a mesh has no coordinate."""
    from torch.distributed.device_mesh import DeviceMesh

    own = DeviceMesh(mesh.device_type, [0, 1], mesh_dim_names=("x",))
    return own, torch.ones(4, device=mesh.device_type)


def reduce_among_members(own, x):
    if own.get_coordinate() is not None:
        torch.distributed.all_reduce(x, group=own.get_group())
    return x * 2


@pytest.mark.parametrize(("rank", "reductions"), [(1, 1), (3, 0)])
def test_a_rank_without_coordinate_leaves_out_what_is_for_members(rank, reductions):
    ops = record_in_child(reduce_among_members, among_members, (4,), ("dp",), rank).ops
    assert sum(op.name == "c10d.allreduce_.default" for op in ops) == reductions


def vector(mesh):
    return (torch.ones(4, device=mesh.device_type),)


def test_receiving_from_any_rank_is_refused_by_line():
    def step(x):
        torch.distributed.recv(x)

    with pytest.raises(
        FlintError, match=r"recv at .*test_own_meshes\.py:\d+ .*name the sender: src="
    ):
        record_in_child(step, vector, (2,), ("x",))


def groups_by_numbers(mesh, x):
    """Sums over the first column of the mesh, and over the columns of one made of numbers."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    turned = DeviceMesh(mesh.device_type, mesh.mesh.t().contiguous(), mesh_dim_names=("b", "a"))
    counted = DeviceMesh(mesh.device_type, torch.arange(4).view(2, 2).flip(1))
    first = mesh.mesh[:, 0].tolist()
    group = dist.new_group(first)
    if dist.get_rank() in first:
        dist.all_reduce(x, group=group)
    dist.all_reduce(x, group=turned.get_group("b"))
    dist.all_reduce(x, group=counted.get_group(0))


@pytest.mark.parametrize(("rank", "groups"), [(0, [[0, 2], [0, 1], [0, 2]]), (3, [[2, 3], [1, 3]])])
def test_ranks_that_a_mesh_tells_are_known(rank, groups):
    """The mesh is 0 1 / 2 3; turned 0 2 / 1 3; counted and flipped 1 0 / 3 2."""
    recording = record_in_child(groups_by_numbers, with_numbers, (2, 2), ("a", "b"), rank)
    found = [sorted(recording.groups[op.group].ranks) for op in recording.ops if op.group >= 0]
    assert found == groups


def with_numbers(mesh):
    return mesh, torch.ones(4, device=mesh.device_type)
