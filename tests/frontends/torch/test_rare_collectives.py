"""Communication that few programs use, captured."""

from __future__ import annotations

import functools
import itertools

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

import flint  # noqa: E402
from flint.errors import FlintError  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402
from tests.programs.comparing import of_ranks  # noqa: E402


def gathered_in_one(mesh, x, y):
    lists = [[torch.empty_like(x), torch.empty_like(y)] for _ in range(mesh.size())]
    dist.monitored_barrier()
    dist.group.WORLD.monitored_barrier()
    dist.all_gather_coalesced(lists, [x, y])
    return lists[2][0], lists[3][1]


def two_tensors(mesh):
    return mesh, *(torch.ones(count, device=mesh.device_type) for count in (16, 3))


def test_tensors_that_are_gathered_together_are_one_communication():
    """16 and 3 numbers of 4 bytes of each of four ranks; gloo's barrier is one of the hosts."""
    workload = flint.capture(gathered_in_one, mesh=(4,), axes=("dp",), setup=two_tensors).capture()
    (found,) = [node.communication for node in workload.programs[0].graph if node.communication]
    assert found.kind == "all_gather"
    assert (found.operand_bytes, found.result_bytes) == ((19 * 4,), (4 * 19 * 4,))
    told = [text for text in workload.warnings if text.startswith("monitored_barrier at ")]
    assert [workload.warnings[text] for text in told] == [1, 1]  # the function's, the group's


def scattered_unevenly(mesh, parts):
    kept = torch.empty(dist.get_rank() + 2, device=mesh.device_type)
    dist.reduce_scatter(kept, parts)
    return kept * 2


def one_larger_than_the_last(mesh):
    return mesh, [torch.ones(rank + 2, device=mesh.device_type) for rank in range(mesh.size())]


def test_parts_of_different_sizes_are_reduced_one_by_one():
    """As ProcessGroupNCCL::reduce_scatter does: 2, 3 and 4 numbers of 4 bytes, each to its rank."""
    step = flint.capture(
        scattered_unevenly, mesh=(3,), axes=("dp",), setup=one_larger_than_the_last
    )
    for rank in of_ranks(step.capture()):
        assert rank["collectives"] == {"over 0, 1, 2": [["all_reduce", n] for n in (8, 12, 16)]}


def gathered_with_gradient(x, group):
    from torch.distributed.nn.functional import all_gather

    torch.cat(all_gather(x, group=group)).square().sum().backward()


def of_backend(backend, mesh):
    group = dist.new_group(range(mesh.size()), backend=backend)
    return torch.ones(3, 5, device=mesh.device_type, requires_grad=True), group


@pytest.mark.parametrize(
    ("backend", "name"),
    [(None, "reduce_scatter_"), ("nccl", "reduce_scatter_"), ("gloo", "scatter_")],
)
def test_the_gradient_of_a_gather_is_what_the_backend_has_for_it(backend, name):
    """torch.distributed.nn.functional: a reduce-scatter with NCCL; with gloo, which has none when
    that was written, an exchange: a scatter from each of the four ranks."""
    recording = record_in_child(
        gathered_with_gradient, functools.partial(of_backend, backend), (4,), ("dp",)
    )
    gather, *gradient = [op for op in recording.ops if op.group >= 0]
    assert gather.name == "c10d.allgather_.default"
    assert {op.name for op in gradient} == {f"c10d.{name}.default"}
    assert len(gradient) == (4 if backend == "gloo" else 1)


def backends(mesh):
    mixed = dist.new_group(range(mesh.size()), backend="cpu:gloo,cuda:nccl")
    groups = None, mixed, mesh.get_group()
    return torch.ones(2, device=mesh.device_type), [dist.get_backend(group) for group in groups]


def doubled_if_nccl(x, found):
    return x * 2 if found == ["nccl", "cpu:gloo,cuda:nccl", "nccl"] else x + 1


def test_programs_are_told_the_backend_that_they_asked_for():
    """As ``get_backend`` answers; NCCL where they named none."""
    [op] = record_in_child(doubled_if_nccl, backends, (4,), ("dp",)).ops
    assert op.name == "aten.mul.Tensor"


def permuted(order, x):
    from torch.distributed._functional_collectives import permute_tensor

    return permute_tensor(x, order, dist.group.WORLD) + 1


@pytest.mark.parametrize("order", [[1, 2, 3, 0], [0, 2, 3, 1]], ids=["ring", "mixed"])
def test_a_permutation_is_the_all_to_all_that_pytorch_calls(order):
    """With one split that is not 0: its size is known, the receivers' offsets are not."""
    step = functools.partial(permuted, order)
    workload = flint.capture(step, mesh=(4,), axes=("x",), setup=numbers).capture()
    for program in workload.programs:
        [item] = [node.communication for node in program.graph if node.communication]
        assert (item.kind, item.operand_bytes) == ("ragged_all_to_all", (4096 * 4,))
        assert item.exact  # every rank gives all it has to one member
    assert "uneven all-to-all: offsets at the receivers assumed" in workload.warnings


def numbers(mesh):
    return (torch.ones(4096, device=mesh.device_type),)


def sum_of_four_columns(x):
    return permuted([1, 2, 3, 0], x.view(1024, 4))


def test_splits_that_are_not_rows_are_refused():
    """``permute_tensor`` takes elements for rows: a matrix of 1,024 rows has 4,096 elements."""
    with pytest.raises(FlintError, match="input splits of 4,096 rows for a tensor of 1,024"):
        record_in_child(sum_of_four_columns, numbers, (4,), ("x",))


def to_and_from_a_root(mesh, x):
    """Over all ranks of a mesh of two axes, to rank 2 and from there."""
    ranks = range(dist.get_world_size())
    is_root = dist.get_rank() == 2
    dist.gather(x, [torch.empty_like(x) for _ in ranks] if is_root else None, dst=2)
    dist.scatter(x, [x + rank for rank in ranks] if is_root else None, src=2)


@pytest.mark.parametrize("shape", [(2, 2), (2, 3)])
def test_a_gather_over_several_axes_is_a_message_from_each_rank_to_the_root(shape):
    axes = ("dp", "tp")
    workload = flint.capture(
        to_and_from_a_root, mesh=shape, axes=axes,
        setup=lambda mesh: (mesh, torch.randn(3, device=mesh.device_type)),
    ).capture()  # fmt: skip
    found = [item["collectives"] for item in of_ranks(workload)]
    sent = [["message", 12]]
    others = [rank for rank in range(len(found)) if rank != 2]
    assert found[2] == {
        f"{way} {rank}": sent for way, rank in itertools.product(("from", "to"), others)
    }
    assert all(found[rank] == {"to 2": sent, "from 2": sent} for rank in others)


def quantised(gradients):
    """As PyTorch's ``quantization_pertensor_hook`` goes on from what it gathers."""
    ranks = range(dist.get_world_size())
    scales = torch.ones(2, device=gradients.device)
    gathered = [torch.zeros_like(scales) for _ in ranks]
    future = dist.all_gather(gathered, scales, async_op=True).get_future()

    def send(future):
        of_ranks = future.wait()[0]
        own = gradients / of_ranks[dist.get_rank()][0] + of_ranks[dist.get_rank()][1]
        sent = own.to(torch.uint8)
        parts = [torch.zeros_like(sent) for _ in ranks]
        return dist.all_gather(parts, sent, async_op=True).get_future().wait()

    return future.then(send).then(lambda future: sum(future.wait()[0])).wait()


def test_the_future_of_a_gathered_list_holds_nccls_buffer():
    """NCCL's process group gathers a list into one tensor with a row per rank: 2 floats, and 64
    bytes, of each of four ranks.
    """
    workload = flint.capture(
        quantised, mesh=(4,), axes=("dp",), setup=lambda mesh: (torch.ones(64, device="cuda"),)
    ).capture()
    sent = [node.communication for node in workload.programs[0].graph if node.communication]
    assert [(one.kind, one.operand_bytes, one.result_bytes) for one in sent] == [
        ("all_gather", (2 * 4,), (4 * 2 * 4,)), ("all_gather", (64,), (4 * 64,)),
    ]  # fmt: skip


def over_parts(mesh, x):
    """Halves of the world, and the ends of each half."""
    half = dist.split_group(split_ranks=[[1, 0, 2], [3, 4, 5]])
    ends = dist.split_group(half, [[0, 2]], group_desc="ends")
    dist.all_reduce(x, group=half)
    if ends is not None:
        dist.all_reduce(x[:1], group=ends)


def test_parts_of_a_group_are_groups_of_its_places():
    workload = flint.capture(
        over_parts, mesh=(6,), axes=("dp",),
        setup=lambda mesh: (mesh, torch.randn(3, device=mesh.device_type)),
    ).capture()  # fmt: skip
    whole, few = ["all_reduce", 12], ["all_reduce", 4]
    halves = [{"over 0, 1, 2": [whole]}] * 3 + [{"over 3, 4, 5": [whole]}] * 3
    halves[0] = halves[2] = {**halves[0], "over 0, 2": [few]}
    halves[3] = halves[5] = {**halves[3], "over 3, 5": [few]}
    assert [item["collectives"] for item in of_ranks(workload)] == halves
