"""DistributedDataParallel with what users add to it."""

from __future__ import annotations

from functools import partial

import pytest

torch = pytest.importorskip("torch")

from flint.errors import FlintError  # noqa: E402
from tests.torch.in_child import record_in_child  # noqa: E402


def hooked(mesh):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2).to(mesh.device_type)
    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, bf16_compress_hook)
    return model, torch.randn(4, 8, 32, device=mesh.device_type)


def accumulating_step(model, x):
    with model.no_sync():
        model(x[:2]).square().mean().backward()
    model(x[2:]).square().mean().backward()


def test_a_bf16_hook_reduces_the_second_micro_batchs_gradients_only_in_bf16():
    """Per layer 96 * 32 + 96 (q, k, v), 32 * 32 + 32, 64 * 32 + 64, 32 * 64 + 32, four of 32."""
    ops = record_in_child(accumulating_step, hooked, (4,), ("dp",)).ops
    (reduced,) = [op for op in ops if op.group >= 0]
    assert reduced.name == "c10d.allreduce_.default"
    assert (reduced.writes[0].shape, reduced.writes[0].dtype) == ((2 * 8544,), "bfloat16")


def wrapped(static_graph, mesh):
    layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)
    model = torch.nn.Sequential(*layers).to(mesh.device_type)
    options = {"static_graph": True, "find_unused_parameters": True} if static_graph else {}
    model = torch.nn.parallel.DistributedDataParallel(model, **options)
    return model, torch.randn(4, 16, device=mesh.device_type)


def plain_step(model, x):
    model(x).square().mean().backward()


def test_a_static_graphs_step_communicates_the_gradients_and_nothing_else():
    """16 * 32 + 32 and 32 * 16 + 16 numbers in one bucket; which are used is known by then."""
    ops = record_in_child(plain_step, partial(wrapped, True), (4,), ("dp",)).ops
    (reduced,) = [op for op in ops if op.group >= 0]
    assert (reduced.writes[0].shape, reduced.writes[0].dtype) == ((1072,), "float32")
    plain = record_in_child(plain_step, partial(wrapped, False), (4,), ("dp",)).ops
    assert [op.name for op in ops if op.phase == "backward"] == [
        op.name for op in plain if op.phase == "backward"
    ]


def looking(unused, mesh):
    layers = [torch.nn.Linear(16, 32), torch.nn.Linear(32, 16)]
    model = torch.nn.Sequential(*layers).to(mesh.device_type)
    if unused:
        model.unused = torch.nn.Parameter(torch.zeros(3, device=mesh.device_type))
        first, second = model
        model.forward = lambda x: second(first(x))
    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    return model, torch.randn(4, 16, device=mesh.device_type)


def test_a_step_that_looks_for_unused_parameters_and_has_none_is_captured_with_a_warning():
    recording = record_in_child(plain_step, partial(looking, False), (4,), ("dp",), 2)
    reduced = [op for op in recording.ops if op.group >= 0]
    assert [op.writes[0].shape for op in reduced] == [(1072,)]
    [text] = [text for text in recording.warnings if "find_unused_parameters" in text]
    assert "which parameters were used, 4 bytes each, is left out" in text


def test_an_unused_parameter_is_named():
    with pytest.raises(FlintError, match=r"the loss does not depend on unused.*requires_grad_"):
        record_in_child(plain_step, partial(looking, True), (4,), ("dp",), 2)


def partitioned(mesh):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model, x = wrapped(False, mesh)
    options = {"optimizer_class": torch.optim.SGD, "lr": 0.1, "momentum": 0.9}
    return model, ZeroRedundancyOptimizer(model.parameters(), **options), x


def partitioned_step(model, optimizer, x):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_a_partitioned_optimizers_owners_broadcast_what_they_updated():
    """The largest first, each to the rank that has least: two weights, biases of 32 and of 16."""
    recording = record_in_child(partitioned_step, partitioned, (4,), ("dp",), 2)
    sent = [op for op in recording.ops if op.name == "c10d.broadcast_.default"]
    assert [op.writes[0].shape for op in sent] == [(32, 16), (16, 32), (32,), (16,)]
    assert [next(item for item in op.args if type(item) is int) for op in sent] == [0, 1, 2, 3]
    states = [item.view.shape for item in recording.inputs if item.role == "optimizer state"]
    assert states == [(32,)]  # the third's momentum


@torch.jit.script
def scripted(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2


def test_scripted_functions_run_wherever_they_are_made():
    def step(x):
        return torch.jit.script(doubled)(scripted(x))

    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def setup(mesh):
        return (torch.randn(4, device=mesh.device_type),)

    ops = record_in_child(step, setup, (1,), ("dp",)).ops
    assert [op.name.split(".")[1] for op in ops] == ["relu", "mul", "mul"]
