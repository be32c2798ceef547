"""Recordings of small steps, against the text of the step.

Longer than 300 lines because each step is next to the ops in its text.
"""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from flint.frontends.torch.recording.recording import View, views_in  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402


def record(function, setup):
    return record_in_child(function, setup, (1,), ("dp",))


def names(recording):
    return [op.name.removeprefix("aten.").split(".")[0] for op in recording.ops]


def two_tensors(mesh):
    return torch.ones(4, 6, device="cuda"), torch.ones(6, 8, device="cuda")


def test_an_op_is_written_down_in_full():
    recording = record(lambda a, b: a @ b, two_tensors)
    (op,) = recording.ops
    assert op.name == "aten.mm.default"
    left, right = op.args
    assert (left.shape, left.stride, left.dtype) == ((4, 6), (6, 1), "float32")
    assert (right.shape, right.stride) == ((6, 8), (8, 1))
    assert op.results == recording.results
    assert [recording.storage_bytes[v.storage] for v in (left, right, *op.results)] == [
        96,
        192,
        128,
    ]
    assert [(item.view, item.role, item.name) for item in recording.inputs] == [
        (left, "batch", "a"), (right, "batch", "b"),
    ]  # fmt: skip


def test_views_are_not_ops():
    recording = record(lambda a, b: a[1:3].t().neg(), two_tensors)
    (op,) = recording.ops
    # Rows 1 and 2 of 6 elements, transposed: from element 6, strides swapped.
    assert op.args == (View(op.args[0].storage, 6, (6, 2), (1, 6), "float32"),)


def test_a_view_in_place_is_not_an_op():
    def step(a, b):
        other = a.clone().as_strided_((2, 3), (1, 6), 6)
        other.neg()

    clone, neg = record(step, two_tensors).ops
    assert neg.args == (View(clone.results[0].storage, 6, (2, 3), (1, 6), "float32"),)


def test_an_in_place_op_writes_its_argument():
    def step(a, b):
        a[0].add_(1.5)

    (op,) = record(step, two_tensors).ops
    assert op.writes == (op.args[0],) == op.results and op.args[0].shape == (6,)
    assert op.args[1] == 1.5


def test_lists_of_tensors_stay_lists():
    recording = record(lambda a, b: torch.cat([a, a]), two_tensors)
    (op,) = recording.ops
    assert isinstance(op.args[0], tuple) and len(op.args[0]) == 2
    assert len({view.storage for view in views_in(op.args)}) == 1


def test_what_is_only_overwritten_needs_no_value_from_before():
    def step(a, b, scratch):
        scratch.copy_(a)
        return scratch * 2

    def setup(mesh):
        return *two_tensors(mesh), torch.empty(4, 6, device="cuda")

    def hidden(a, b):
        step(a, b, _SCRATCH[0])

    recording = record(step, setup)
    assert {item.name for item in recording.inputs} == {"a", "scratch"}  # named: it is an output
    assert names(recording) == ["copy_", "mul"]

    def hidden_setup(mesh):
        _SCRATCH[:] = [torch.empty(4, 6, device="cuda")]
        return two_tensors(mesh)

    assert [item.name for item in record(hidden, hidden_setup).inputs] == ["a"]


_SCRATCH: list = []


def test_reading_beyond_what_was_overwritten_needs_the_value_from_before():
    def step(a, b):
        _SCRATCH[0][:2].zero_()
        return _SCRATCH[0].neg()

    def setup(mesh):
        _SCRATCH[:] = [torch.empty(4, 6, device="cuda")]
        return two_tensors(mesh)

    (item,) = record(step, setup).inputs
    assert (item.role, item.view.shape) == ("unknown", (4, 6))


def test_a_host_tensor_is_a_constant_with_its_value():
    def step(a, b):
        return a * torch.tensor(2.5)

    recording = record(step, two_tensors)
    assert len(recording.ops) == 1
    roles = {item.role: item.view.storage for item in recording.inputs}
    assert set(roles) == {"batch", "constant"}
    # 2.5 in IEEE single precision is 0x40200000.
    assert recording.constants == {roles["constant"]: bytes.fromhex("00002040")}


def test_a_tensor_made_on_the_device_from_numbers_is_copied_there():
    recording = record(lambda a, b: a + torch.tensor([1.0] * 6, device="cuda"), two_tensors)
    assert names(recording) == ["_to_copy", "add"]


def test_a_training_step_of_one_layer():
    """x [5, 3] W^T [3, 2]: forward one mm; backward one for W's gradient (x needs none)."""

    def setup(mesh):
        model = torch.nn.Linear(3, 2, bias=False, device="cuda")
        return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(5, 3, device="cuda")

    def step(model, optimizer, x):
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    recording = record(step, setup)
    multiplied = [
        tuple(v.shape for v in views_in(op.args)) for op in recording.ops if "mm" in op.name
    ]
    assert multiplied == [((5, 3), (3, 2)), ((2, 5), (5, 3))]
    updates = [op for op in recording.ops if op.phase == "optimizer"]
    (weight,) = [item for item in recording.inputs if item.role == "parameter"]
    assert weight.name == "model.weight"
    assert [view for op in updates for view in op.writes] == [weight.view]


def test_batch_norm_writes_statistics_that_its_schema_hides():
    def setup(mesh):
        return torch.nn.BatchNorm1d(4).cuda(), torch.ones(8, 4, device="cuda")

    recording = record(lambda model, x: model(x), setup)
    written = {view.storage for op in recording.ops for view in op.writes}
    changed = {item.name for item in recording.inputs if item.view.storage in written}
    assert changed == {
        "model.running_mean", "model.running_var", "model.num_batches_tracked",
    }  # fmt: skip


def test_memory_of_a_model_that_fits_nowhere():
    """2^17 x 2^17 fp32: 64 GiB, made on the CPU and moved."""

    def setup(mesh):
        model = torch.nn.Linear(2**17, 2**17, bias=False).to("cuda")
        return model, torch.ones(1, 2**17, device="cuda")

    recording = record(lambda model, x: model(x), setup)
    (weight,) = [item for item in recording.inputs if item.role == "parameter"]
    assert recording.storage_bytes[weight.view.storage] == 64 * 2**30
    assert math.prod(weight.view.shape) == 2**34


def autocast_setup(mesh):
    layers = torch.nn.Linear(4, 4, bias=False), torch.nn.LayerNorm(4)
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, torch.ones(2, 4, device="cuda"), torch.amp.GradScaler("cuda")


def autocast_step(model, optimizer, x, scaler):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(model(x)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def test_autocast_casts_as_pytorchs_op_reference_says():
    """Linear: lower precision; layer_norm: float32; a weight is cast once for both uses."""
    recording = record(autocast_step, autocast_setup)
    forward = [op for op in recording.ops if op.phase == "forward"]
    products = [op for op in forward if op.name == "aten.mm.default"]
    assert [[v.dtype for v in views_in(op.args)] for op in products] == [["bfloat16"] * 2] * 2
    norms = [op for op in forward if op.name == "aten.native_layer_norm.default"]
    assert [op.args[0].dtype for op in norms] == ["float32"] * 2
    (weight,) = [item.view for item in recording.inputs if item.name == "model.0.weight"]
    casts = [op for op in forward if op.name == "aten._to_copy.default" and weight in op.args]
    assert len(casts) == 1 and casts[0].results[0].dtype == "bfloat16"


def test_a_scaled_step_is_not_skipped():
    recording = record(autocast_step, autocast_setup)
    written = {v.storage for op in recording.ops if op.phase == "optimizer" for v in op.writes}
    parameters = {i.view.storage for i in recording.inputs if i.role == "parameter"}
    assert parameters <= written
    assert any("assumed to be finite" in text for text in recording.warnings)


def two_on_ranks(mesh):
    return torch.ones(8, device="cuda"), torch.ones(32, device="cuda")


def overlapping(x, big):
    work = torch.distributed.all_reduce(x, async_op=True)
    doubled = big * 2
    work.wait()
    return x + doubled[:8]


def test_an_asynchronous_collective_runs_beside_and_is_waited_for():
    reduce, product, addition = record_in_child(overlapping, two_on_ranks, (4,), ("dp",)).ops
    assert reduce.stream != product.stream == addition.stream == 0
    assert (product.after, addition.after) == ((), (0,))


def going_on(x, big):
    future = torch.distributed.broadcast(x, 0, async_op=True).get_future()
    halved = future.then(lambda sent: sent.value()[0] / 2)
    doubled = big * 2
    return halved.wait() + doubled[:8]


def test_what_follows_a_collective_has_a_stream_of_its_own():
    """As a callback of a future has on a GPU: work issued after it does not wait for it."""
    send, half, product, addition = record_in_child(going_on, two_on_ranks, (4,), ("dp",)).ops
    assert len({send.stream, half.stream, product.stream}) == 3 and product.stream == 0
    assert (half.after, product.after, addition.after) == ((0,), (), (1,))
    assert half.args[0] in send.writes


def overwriting(x, big):
    work = torch.distributed.all_reduce(x, async_op=True)
    x.zero_()
    work.wait()


def test_overwriting_what_a_collective_uses_comes_after_it():
    _, zero = record_in_child(overwriting, two_on_ranks, (4,), ("dp",)).ops
    assert zero.stream == 0 and zero.after == (0,)


def everything(x, big):
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    rank = dist.get_rank()
    parts = [torch.empty_like(x) for _ in range(4)]
    dist.all_gather_into_tensor(big, x)
    dist.reduce_scatter_tensor(x, big, op=dist.ReduceOp.AVG)
    dist.all_gather(parts, x)
    dist.all_to_all_single(torch.empty(20, device="cuda"), big, [2, 6, 6, 6], [5, 9, 9, 9])
    dist.broadcast(x, 2)
    dist.reduce(x, 1)
    dist.scatter(x, parts if rank == 0 else None, src=0)
    with dist._coalescing_manager():
        dist.all_reduce(x)
        dist.all_reduce(big)
    sent = dist.P2POp(dist.isend, x, 2), dist.P2POp(dist.irecv, big[:8], 0)
    for work in dist.batch_isend_irecv(list(sent)):
        work.wait()
    functional.all_reduce(x, "max", dist.new_group([0, 1])) + 1
    told = [None] * 4
    dist.all_gather_object(told, {"rank": rank})
    assert told == [{"rank": other} for other in range(4)]


def test_every_collective_says_group_reduction_peer_and_what_it_writes():
    recording = record_in_child(everything, two_on_ranks, (4,), ("dp",), 1)
    found = [
        (
            op.name.split(".")[1], recording.groups[op.group].ranks, op.reduction, op.peer,
            tuple(view.shape[0] for view in op.writes),
        )
        for op in recording.ops
        if op.group >= 0
    ]  # fmt: skip
    world = (0, 1, 2, 3)
    assert found == [
        ("_allgather_base_", world, "", -1, (32,)),
        ("_reduce_scatter_base_", world, "avg", -1, (8,)),
        ("allgather_", world, "", -1, (8, 8, 8, 8)),
        ("alltoall_base_", world, "", -1, (20,)),
        ("broadcast_", world, "", -1, (8,)),
        ("reduce_", world, "sum", -1, (8,)),
        ("scatter_", world, "", -1, (8,)),
        ("allreduce_coalesced_", world, "sum", -1, (8, 32)),
        ("send", world, "", 2, ()),
        ("recv_", world, "", 0, (8,)),
        ("all_reduce", (0, 1), "max", -1, ()),
    ]
    ((text, count),) = recording.warnings.items()
    assert "Python objects are exchanged" in text and count == 1


def test_a_conjugate_view_reports_it():
    def setup(mesh):
        return (torch.ones(3, 4, dtype=torch.complex64, device="cuda"),)

    (first, *_) = record(lambda x: x.conj() * 2, setup).ops
    (argument,) = first.args
    assert argument.conjugate
