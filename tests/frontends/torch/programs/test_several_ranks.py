"""Programs whose ranks do the same, or do not."""

from __future__ import annotations

import re
import textwrap

import pytest

from flint import load
from tests.programs.comparing import PRODUCTS, of_ranks
from tests.support.command_line import flint_with_torch as flint

#: Two stages of two layers, each twice: data-parallel copies of a stage do the same.
ZERO_BUBBLE = """
    import os, torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.pipelining import PipelineStage, ScheduleInterleavedZeroBubble
    dist.init_process_group("nccl")
    pp = init_device_mesh("cuda", (8, 2), mesh_dim_names=("dp", "pp"))["pp"]
    stages = []
    for at in range(2):
        layers = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4))).cuda()
        place = pp.get_local_rank() + 2 * at
        stages.append(PipelineStage(layers, place, 4, "cuda", group=pp.get_group()))
    schedule = ScheduleInterleavedZeroBubble(stages, 4, loss_fn=torch.nn.functional.mse_loss)
    weights = [weight for stage in stages for weight in stage.submod.parameters()]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for _ in range(3):
        rows = torch.ones(8, 8, device="cuda")
        schedule.step(*([rows] if pp.get_local_rank() == 0 else []), target=rows)
        optimizer.step()
        optimizer.zero_grad()
"""

#: Only rank 0 updates; it gets everyone's gradients.
ONE_UPDATES = """
    import torch, torch.distributed as dist
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    layer = torch.nn.Linear(4, 8, bias=False).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1) if rank == 0 else None
    for _ in range(6):
        batch = torch.ones(2, 4, device="cuda")
        layer(batch).sum().backward()
        dist.all_reduce(layer.weight.grad)
        if rank == 0:
            optimizer.step()
        layer.weight.grad = None
        dist.broadcast(layer.weight.data, 0)
"""

#: Rank 1 has an optimizer that never steps.
ONE_WAITS = """
    import os, torch
    if os.environ["RANK"] == "1":
        other = torch.optim.SGD([torch.nn.Parameter(torch.ones(2).cuda())], lr=0.1)
    layer = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        layer(torch.ones(2, 4, device="cuda")).sum().backward()
        optimizer.step()
"""

#: A stage says what it sends: how many tensors, and their shapes (as DeepSpeed's pipelines do).
FORMS = """
    import torch, torch.distributed as dist
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    def told(numbers, to):
        dist.send(torch.tensor([len(numbers)], device="cuda"), to)
        message = torch.empty(8, dtype=torch.int32, device="cuda")
        message[: len(numbers)].copy_(torch.tensor(numbers))
        dist.send(message, to)
    def heard(source):
        count = torch.zeros(1, dtype=torch.long, device="cuda")
        dist.recv(count, source)
        numbers = torch.empty(8, dtype=torch.int32, device="cuda")
        dist.recv(numbers, source)
        return numbers[:count].tolist()
    layer = torch.nn.Linear(6, 6).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    shape = [3, 5, 6]
    for step in range(4):
        if rank > 0:
            shape = heard(rank - 1) if step == 0 else shape
            x = torch.zeros(shape, device="cuda")
            dist.recv(x, rank - 1)
        else:
            x = torch.ones(shape, device="cuda")
        y = layer(x)
        if rank < 2:
            if step == 0:
                told(list(y.shape), rank + 1)
            dist.send(y.detach(), rank + 1)
        y.sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""

#: Every rank makes all groups and keeps its own: of 4 for tensors, of 8 for data.
GROUPS = """
    import torch, torch.distributed as dist
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    for ranks in [range(at, at + 4) for at in range(0, 32, 4)]:
        group = dist.new_group(list(ranks))
        if rank in ranks:
            tensors = group
    for ranks in [list(range(at, 32, 4)) for at in range(4)]:
        group = dist.new_group(ranks)
        if rank in ranks:
            data = group
    layer = torch.nn.Linear(4, 8, bias=False).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        y = layer(torch.ones(2, 4, device="cuda"))
        dist.all_reduce(y.detach(), group=tensors)
        y.sum().backward()
        dist.all_reduce(layer.weight.grad, group=data)
        optimizer.step()
        optimizer.zero_grad()
"""

#: Two halves with models of their own.
ROLES = """
    import torch, torch.distributed as dist
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    for role, ranks in enumerate([list(range(16)), list(range(16, 32))]):
        group = dist.new_group(ranks)
        if rank in ranks:
            mine, width = group, 8 << role
    layer = torch.nn.Linear(4, width, bias=False).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        layer(torch.ones(2, 4, device="cuda")).sum().backward()
        dist.all_reduce(layer.weight.grad, group=mine)
        optimizer.step()
        optimizer.zero_grad()
"""

#: To the next of four and from the one before, named by their global ranks.
RINGS = """
    import torch, torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    dist.init_process_group("nccl")
    group = init_device_mesh("cuda", (8, 4), mesh_dim_names=("dp", "cp"))["cp"].get_group()
    place, ranks = dist.get_rank(group), dist.get_process_group_ranks(group)
    layer = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.ones(2, 4, device="cuda")
        got = torch.empty_like(x)
        for work in dist.batch_isend_irecv([
            dist.P2POp(dist.isend, x, ranks[(place + 1) % 4], group),
            dist.P2POp(dist.irecv, got, ranks[(place - 1) % 4], group),
        ]):
            work.wait()
        layer(got).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def run(text, folder, world, *options):
    (folder / "train.py").write_text(textwrap.dedent(text))
    program = ("--", "python", "train.py")
    return flint("run", "--world", world, *options, "-o", folder / "out", *program, cwd=folder)


@pytest.mark.thorough
def test_gradients_of_weights_apart_have_one_order_in_all_processes(tmp_path):
    done = run(ZERO_BUBBLE, tmp_path, 16)
    assert done.returncode == 0, done.stderr
    ranks = [program.ranks.array().tolist() for program in load(tmp_path / "out").programs]
    assert sorted(ranks) == [[*range(0, 16, 2)], [*range(1, 16, 2)]]


@pytest.mark.thorough
def test_ranks_without_an_optimizer_and_those_that_have_one_repeat_the_same_loop(tmp_path):
    done = run(ONE_UPDATES, tmp_path, 4)
    assert done.returncode == 0, done.stderr
    size = 4 * 8 * 4  # of the weight
    rank = {
        "collectives": {"over 0, 1, 2, 3": [["all_reduce", size], ["broadcast", size]]},
        "flops": 2 * (2 * 2 * 4 * 8),  # the layer, and the gradient of its weight
    }
    workload = load(tmp_path / "out")
    assert of_ranks(workload, PRODUCTS) == [rank] * 4
    ranks = [program.ranks.array().tolist() for program in workload.programs]
    assert sorted(ranks) == [[0], [1, 2, 3]]


def groups(workload):
    return {over for rank in of_ranks(workload, PRODUCTS) for over in rank["collectives"]}


def over(*ranks):
    return "over " + ", ".join(map(str, ranks))


def recorded(folder):
    (line,) = re.findall(r"recorded ranks: (.*);", flint("inspect", folder / "out").stdout)
    return line.split(",")


@pytest.mark.thorough
def test_asking_for_the_own_one_of_many_groups_does_not_tell_ranks_apart(tmp_path):
    done = run(GROUPS, tmp_path, 32)
    assert done.returncode == 0, done.stderr
    workload = load(tmp_path / "out")
    assert groups(workload) == {over(*range(at, at + 4)) for at in range(0, 32, 4)} | {
        over(*range(at, 32, 4)) for at in range(4)
    }
    assert len(recorded(tmp_path)) <= 5


def test_groups_of_which_each_does_something_else_are_told_apart(tmp_path):
    done = run(ROLES, tmp_path, 32)
    assert done.returncode == 0, done.stderr
    workload = load(tmp_path / "out")
    halves = [range(16), range(16, 32)]
    sizes = [4 * 8 * 4, 4 * 16 * 4]  # of float32 weights of 4 x 8 and 4 x 16
    assert [rank["collectives"] for rank in of_ranks(workload, PRODUCTS)] == [
        {over(*half): [["all_reduce", size]]}
        for half, size in zip(halves, sizes, strict=True)
        for _ in half
    ]
    assert len(recorded(tmp_path)) <= 5


@pytest.mark.thorough
def test_neighbours_in_a_ring_do_not_tell_its_copies_apart(tmp_path):
    """Each place in the ring is recorded, with one end of its copies and the other."""
    done = run(RINGS, tmp_path, 32)
    assert done.returncode == 0, done.stderr
    size = 2 * 4 * 4
    assert [rank["collectives"] for rank in of_ranks(load(tmp_path / "out"), PRODUCTS)] == [
        {
            f"to {first + (place + 1) % 4}": [["message", size]],
            f"from {first + (place - 1) % 4}": [["message", size]],
        }
        for first in range(0, 32, 4)
        for place in range(4)
    ]
    assert len(recorded(tmp_path)) <= 8


@pytest.mark.thorough
def test_a_loop_can_be_chosen_where_an_optimizer_steps(tmp_path):
    done = run(ONE_UPDATES, tmp_path, 4, "--step", "loop")
    assert done.returncode == 0, done.stderr
    assert "the step is one round of the repeated ops" in done.stderr


@pytest.mark.thorough
def test_all_ranks_take_the_step_of_one_whose_optimizer_never_steps(tmp_path):
    done = run(ONE_WAITS, tmp_path, 2)
    assert done.returncode == 0, done.stderr
    assert "an optimizer (SGD) has not stepped in the first 2 steps of others" in done.stderr


@pytest.mark.thorough
def test_a_step_that_a_rank_does_not_have_is_an_error_with_those_that_it_has(tmp_path):
    done = run(ONE_UPDATES, tmp_path, 2, "--step", "optimizer")
    assert done.returncode == 2
    assert "train.py (rank 1) has no such step; steps seen: loop" in done.stderr


@pytest.mark.thorough
def test_what_a_message_says_of_the_next_ones_is_what_its_sender_says(tmp_path):
    """Rank 2 asks rank 1, which asks rank 0."""
    done = run(FORMS, tmp_path, 3)
    assert done.returncode == 0, done.stderr
    ranks = of_ranks(load(tmp_path / "out"), PRODUCTS)
    rows, size = 3 * 5, 3 * 5 * 6 * 4
    assert [rank["flops"] for rank in ranks] == [2 * rows * 6 * 6 * 2] * 3
    assert [list(rank["collectives"]) for rank in ranks] == [
        ["to 1"],
        ["from 0", "to 2"],
        ["from 1"],
    ]
    messages = [one for rank in ranks for found in rank["collectives"].values() for one in found]
    assert messages == [["message", size]] * 4
    assert "assumed to be 1" not in done.stderr
