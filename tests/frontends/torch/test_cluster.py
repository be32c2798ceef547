"""The cluster that is not there: environment, groups, meshes of any size."""

from __future__ import annotations

import inspect

import pytest

torch = pytest.importorskip("torch")

from flint.errors import FlintError, UsageError  # noqa: E402
from flint.frontends.torch.cluster.device_module import DeviceModule  # noqa: E402
from tests.frontends.torch.in_child import in_child  # noqa: E402


def groups_of(rank, shape, axes):
    import torch.distributed as dist

    from flint.frontends.torch.cluster import cluster, device, registration

    registration.register()
    mesh = cluster.start(rank, shape, axes, device.NAME)
    found = {axis: dist.get_process_group_ranks(mesh.get_group(axis)) for axis in axes}
    return dist.get_rank(), dist.get_world_size(), mesh.device_type, found


def test_a_rank_sees_the_groups_along_its_axes():
    # 5 is (1, 1) in a row-major (2, 4) mesh: column {1, 5}, row {4, 5, 6, 7}.
    rank, size, device, found = in_child(groups_of, 5, (2, 4), ("dp", "tp"))
    assert (rank, size, device) == (5, 8, "flint")
    assert found == {"dp": (1, 5), "tp": (4, 5, 6, 7)}


def test_a_cluster_of_a_hundred_thousand_ranks():
    rank, size, _, found = in_child(groups_of, 99_999, (12_500, 8), ("dp", "tp"))
    assert (rank, size) == (99_999, 100_000)
    assert found["tp"] == tuple(range(99_992, 100_000)) and len(found["dp"]) == 12_500


def test_a_parent_that_computed_in_parallel_does_not_hang_its_child():
    torch.ones(2**20).add(1)  # starts OpenMP's threads, which a forked child does not have
    rank, _, _, _ = in_child(groups_of, 99_999, (12_500, 8), ("dp", "tp"))
    assert rank == 99_999


def test_a_rank_outside_the_mesh_is_refused():
    with pytest.raises(UsageError, match="rank 8 is outside the mesh of 8 ranks"):
        in_child(groups_of, 8, (2, 4), ("dp", "tp"))


def test_a_process_of_a_real_job_is_refused():
    def twice():
        groups_of(0, (2,), ("dp",))
        groups_of(0, (2,), ("dp",))

    with pytest.raises(FlintError, match="already has a process group"):
        in_child(twice)


def test_functions_of_the_device_take_cudas_arguments_by_name():
    module = DeviceModule()
    names = [name for name in dir(module) if inspect.isfunction(getattr(torch.cuda, name, None))]
    refused = []
    for name in names:
        asked = inspect.signature(getattr(torch.cuda, name)).parameters.values()
        given = {item.name: None for item in asked if item.kind is item.POSITIONAL_OR_KEYWORD}
        try:
            inspect.signature(getattr(module, name)).bind(**given)
        except TypeError as error:
            refused.append((name, str(error)))
    assert len(names) > 50 and not refused
