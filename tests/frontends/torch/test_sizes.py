"""Collectives that no group could run are refused by line; ranks that do nothing are captured."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import flint  # noqa: E402
from flint.errors import FlintError  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402


def eight(mesh):
    return (torch.ones(8, device=mesh.device_type),)


def few_outputs(x):
    dist.all_gather([torch.empty_like(x)] * 3, x)


def small_output(x):
    dist.all_gather_into_tensor(x.new_empty(24), x)


def few_inputs(x):
    dist.reduce_scatter(torch.empty_like(x), [x] * 3)


def large_input(x):
    dist.reduce_scatter_tensor(x.new_empty(3), x)


def few_messages(x):
    dist.all_to_all([torch.empty_like(x)] * 3, [x] * 4)


def rows_left(x):
    dist.all_to_all_single(x.new_empty(6), x)


def few_splits(x):
    dist.all_to_all_single(x, x.clone(), [4, 4], [2, 2, 2, 2])


def splits_of_more(x):
    dist.all_to_all_single(x, x.clone(), [2, 2, 2, 3], [2, 2, 2, 2])


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (few_outputs, "3 output tensors for 4 ranks"),
        (small_output, "an output of 24 elements for 4 times an input of 8"),
        (few_inputs, "3 input tensors for 4 ranks"),
        (large_input, "an input of 8 elements for 4 times an output of 3"),
        (few_messages, "3 output tensors for 4 ranks"),
        (rows_left, "output of 6 rows, which do not divide among 4 ranks"),
        (few_splits, "2 output splits for 4 ranks"),
        (splits_of_more, "output splits of 9 rows for a tensor of 8"),
    ],
)
def test_what_four_ranks_cannot_exchange_is_refused_with_its_line(step, text):
    with pytest.raises(FlintError, match=rf"c10d\.\w+\.default at .*test_sizes.py:\d+: {text}"):
        record_in_child(step, eight, (4,), ("dp",))


def columns(mesh):
    return (torch.ones(8, 4, device=mesh.device_type), mesh.device_type)


def transposed_sum(x, device):
    dist.all_reduce(x.t())


def part_of_rows(x, device):
    dist.broadcast(x[:, :2], src=0)


def transposed_shards(x, device):
    dist.all_gather_into_tensor(torch.empty(16, 8, device=device), x.t())


def transposed_parts(x, device):
    dist.all_gather([torch.empty(4, 8, device=device) for _ in range(4)], x.t())


@pytest.mark.parametrize(
    ("step", "shape"),
    [
        (transposed_sum, "4, 8"),
        (part_of_rows, "8, 2"),
        (transposed_shards, "4, 8"),
        (transposed_parts, "4, 8"),
    ],
)
def test_tensors_in_pieces_are_refused_where_nccl_wants_one_block(step, shape):
    """``check_gpu_single_tensor`` of ProcessGroupNCCL.cpp: "Tensors must be contiguous"."""
    with pytest.raises(
        FlintError, match=rf"test_sizes.py:\d+: a tensor \({shape}\) that is not con"
    ):
        record_in_child(step, columns, (4,), ("dp",))


def taken_as_they_are(x, device):
    dist.all_to_all_single(torch.empty(4, 8, device=device), x.t())
    images = torch.empty(2, 3, 4, 4, device=device, memory_format=torch.channels_last)
    dist.all_reduce(images)


def test_messages_in_pieces_and_images_with_channels_last_are_taken():
    """NCCL's process group only warns of the former, and the latter are one block."""
    ops = record_in_child(taken_as_they_are, columns, (4,), ("dp",)).ops
    assert {"c10d.alltoall_base_.default", "c10d.allreduce_.default"} <= {op.name for op in ops}


def of_two(x):
    group = dist.new_group([0, 1])
    dist.all_reduce(x, group=group)


def test_ranks_outside_of_the_only_group_do_nothing():
    workload = flint.capture(of_two, mesh=(4,), axes=("dp",), setup=eight).capture()
    kinds = {
        rank: [node.communication.kind for node in program.graph if node.communication]
        for program in workload.programs
        for rank in program.ranks.array().tolist()
    }
    assert kinds == {0: ["all_reduce"], 1: ["all_reduce"], 2: [], 3: []}
