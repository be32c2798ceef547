"""When a recorded step's storages get memory and give it back."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from flint.graph.allocations import BEFORE, FIRST_STEP, HOST, NEVER  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402


def lives(function, setup):
    """(bytes, pool, born, freed, used) of each buffer."""
    recording = record_in_child(function, setup, (1,), ("dp",))
    return [(i.bytes, i.pool, i.born, i.freed, i.used) for i in recording.lives]


def one_tensor(mesh):
    return (torch.ones(256, device="cuda"),)


def test_a_result_lives_until_its_variable_is_gone():
    """Ops 0 (neg), 1 (neg), 2 (neg): the first result is held until the second is made."""

    def step(x):
        a = x.neg()
        b = a.neg()
        del a
        return b.neg()

    assert lives(step, one_tensor) == [
        (1024, 0, BEFORE, NEVER, 0),
        (1024, 0, 0, 2, 1),
        (1024, 0, 1, 3, 2),
        (1024, 0, 2, NEVER, 2),
    ]


def test_a_storage_that_is_resized_lives_more_than_once():
    def step(x):
        a = x.neg()
        a.untyped_storage().resize_(0)
        b = x.neg()
        a.untyped_storage().resize_(1024)
        a.copy_(b)
        return a

    rows = [row for row in lives(step, one_tensor) if row[2] >= 0]
    assert rows == [(1024, 0, 0, 1, 0), (1024, 0, 1, 3, 2), (1024, 0, 2, NEVER, 2)]


def test_memory_is_of_the_stream_that_asked_for_it():
    def step(x):
        with torch.cuda.stream(torch.cuda.Stream()):
            a = x.neg()
        return a.neg()

    made, returned = [row for row in lives(step, one_tensor) if row[2] >= 0]
    assert made[1] != 0
    assert returned[1] == 0


def test_optimizer_state_is_from_the_first_step_and_gradients_are_from_this_one():
    def setup(mesh):
        model = torch.nn.Linear(16, 8, bias=False, device="cuda")
        return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(model, optimizer):
        model.weight.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    found = [row for row in lives(step, setup) if row[0] == 512]
    assert sorted(row[2] for row in found if row[2] < 0) == [BEFORE, FIRST_STEP]
    assert all(row[3] != NEVER for row in found if row[2] >= 0)


def test_what_is_copied_to_the_host_takes_its_memory_there():
    def step(x):
        return x.neg().to("cpu", non_blocking=True)

    assert [row[1] for row in lives(step, one_tensor)].count(HOST) == 1


def test_gradients_are_in_use_until_the_optimizer_has_finished() -> None:
    """Parameters refer to them: no compiler of the model frees them after their last reader, before
    the optimizer's later kernels, whose own memory comes on top."""

    def setup(mesh):
        model = torch.nn.Linear(16, 8, bias=False, device="cuda")
        return model, torch.optim.AdamW(model.parameters(), foreach=True), torch.ones(4, 16).cuda()

    def step(model, optimizer, x):
        model(x).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    recording = record_in_child(step, setup, (1,), ("dp",))
    updates = [number for number, op in enumerate(recording.ops) if op.phase == "optimizer"]
    held = [life for life in recording.lives if 0 <= life.born < updates[0] < life.freed]
    assert [(life.bytes, life.used) for life in held] == [(512, updates[-1])]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_a_collective_wrote_is_freed_after_the_program_has_waited(asynchronous):
    """Ops 0 to 5: twice memory, a gather into it, and what is computed from that."""

    def step(x):
        for _ in range(2):
            whole = x.new_empty(512)
            work = dist.all_gather_into_tensor(whole, x, async_op=asynchronous)
            if work is not None:
                work.wait()
            y = whole.neg()
            del whole, work
        return y

    recording = record_in_child(step, one_tensor, (2,), ("dp",))
    found = [(life.born, life.freed) for life in recording.lives if life.born >= 0]
    assert found == [(0, 3), (2, 6), (3, 6), (5, NEVER)]


def test_a_work_that_one_stream_has_waited_for_orders_another_one_too():
    def step(x):
        whole = x.new_empty(512)
        work = dist.all_gather_into_tensor(whole, x, async_op=True)
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            work.wait()
            a = whole.neg()
        work.wait()
        return a, whole.abs()

    _, _, first, second = record_in_child(step, one_tensor, (2,), ("dp",)).ops
    assert 1 in first.after
    assert 1 in second.after
