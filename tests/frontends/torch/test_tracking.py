"""Whose work an op is: module, phase and line, against the step's own text."""

from __future__ import annotations

import inspect
import weakref

import pytest

torch = pytest.importorskip("torch")

from tests.frontends.torch import small_models  # noqa: E402
from tests.frontends.torch.in_child import record_in_child, recorded  # noqa: E402


def line_of(function, text):
    """The line of this file where a function's source says something."""
    lines, start = inspect.getsourcelines(function)
    (found,) = [start + i for i, line in enumerate(lines) if text in line]
    return found


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Linear(4, 4, bias=False) for _ in range(2))

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.second(x).sigmoid()


def setup(mesh):
    model = Net().cuda()
    return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(2, 4, device="cuda")


def train(model, optimizer, x):
    loss = model(x).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def ops(name):
    recording = recorded(train, setup, (1,), ("dp",))
    return [op for op in recording.ops if op.name == f"aten.{name}.default"]


def test_forward_ops_have_module_and_line():
    (relu,) = ops("relu")
    assert (relu.phase, relu.module) == ("forward", "")
    assert relu.line == line_of(Net.forward, "relu") and relu.file == __file__
    first, second = [op for op in ops("mm") if op.phase == "forward"]
    assert [op.module for op in (first, second)] == ["first", "second"]
    assert second.line == line_of(Net.forward, "second")


def test_backward_ops_have_those_of_their_forward_op():
    (back,) = ops("threshold_backward")
    assert (back.phase, back.line) == ("backward", line_of(Net.forward, "relu"))
    (sigmoid,) = ops("sigmoid_backward")
    assert sigmoid.line == line_of(Net.forward, "sigmoid")
    modules = [op.module for op in ops("mm") if op.phase == "backward"]
    # second: gradients of weight and input; first: of the weight only.
    assert sorted(modules) == ["first", "second", "second"]


def test_clipping_and_update_are_the_optimizer():
    recording = recorded(train, setup, (1,), ("dp",))
    phases = [op.phase for op in recording.ops]
    assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)
    norm = [op for op in recording.ops if "norm" in op.name]
    assert norm and {op.phase for op in norm} == {"optimizer"}
    assert {op.line for op in norm} == {line_of(train, "clip_grad_norm_")}


def test_every_op_has_the_users_line():
    recording = recorded(train, setup, (1,), ("dp",))
    assert {op.file for op in recording.ops} == {__file__}


def checkpointed(mesh):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = small_models.Transformer().cuda()
    for name, layer in model.layers.items():
        model.layers[name] = checkpoint_wrapper(layer)
    return model, torch.optim.AdamW(model.parameters()), small_models.batch()


def test_recomputation_is_a_separate_phase_and_wrappers_have_no_name():
    recording = recorded(small_models.step, checkpointed, (1,), ("dp",))
    again = [op for op in recording.ops if op.phase == "recompute"]
    modules = {op.module for op in recording.ops}
    assert not any("_checkpoint" in name for name in modules)
    assert {op.module.split(".")[1] for op in again} == {"0", "1"}
    # Per block 6 matrix products; recomputation stops before the last, whose result nobody needs.
    forward = [op for op in recording.ops if op.phase == "forward" and "mm" in op.name]
    assert len(forward) == 2 * 6 + 1
    assert len([op for op in again if "mm" in op.name]) == 2 * 5


def test_reentrant_checkpointing_is_recomputation_too():
    def step(model, x):
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=True).sum().backward()

    def build(mesh):
        return Net().cuda(), torch.ones(2, 4, device="cuda", requires_grad=True)

    recording = record_in_child(step, build, (1,), ("dp",))
    again = [op.module for op in recording.ops if op.phase == "recompute" and "mm" in op.name]
    assert again == ["first", "second"]
    backward = [op.module for op in recording.ops if op.phase == "backward" and "mm" in op.name]
    assert sorted(backward) == ["first", "first", "second", "second"]


class Marker:
    """What a call of the layer holds."""


held = []


class Holding(torch.nn.Module):
    def forward(self, x):
        marker = Marker()
        held.append(weakref.ref(marker))
        return (x @ x).tanh()


def step_whose_recomputations_are_over(layer, x):
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    assert len(held) > 1 and not any(marker() for marker in held)


def test_what_a_recomputation_made_is_free_when_it_is_over():
    """PyTorch ends it by an error, as soon as all that was asked for is there."""

    def build(mesh):
        return Holding().cuda(), torch.ones(4, 4, device="cuda", requires_grad=True)

    assert record_in_child(step_whose_recomputations_are_over, build, (1,), ("dp",)).ops


def test_a_model_that_is_not_an_argument_is_found_when_it_is_called():
    held = []

    def build(mesh):
        held.append(Net().cuda())
        return (torch.ones(2, 4, device="cuda"),)

    recording = record_in_child(lambda x: held[-1](x), build, (1,), ("dp",))
    assert [op.module for op in recording.ops if "mm" in op.name] == ["first", "second"]
    names = [item.name for item in recording.inputs if item.role == "parameter"]
    assert names == ["held[0].first.weight", "held[0].second.weight"]


def test_gathered_parameters_belong_to_the_layer_that_they_are_for():
    recording = recorded(small_models.step, small_models.sharded, (4,), ("dp",))
    gathers = [op for op in recording.ops if op.name == "c10d._allgather_base_.default"]
    found = [(op.phase, op.module) for op in gathers]
    # The root and each layer; backward: from the last one, without the root, which fully_shard
    # leaves unsharded after the forward pass (reshard_after_forward=None in its documentation).
    assert found == [
        ("forward", ""), ("forward", "layers.0"), ("forward", "layers.1"),
        ("backward", "layers.1"), ("backward", "layers.0"),
    ]  # fmt: skip


class Parameters(torch.nn.ParameterDict):
    """As tensordict's, which are compared number by number."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return {name: value == other[name] for name, value in self.items()}

    def __bool__(self):
        raise RuntimeError("not permitted")


def multiply(model, x):
    return model(x)


class Multiply(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.own = Parameters({"weight": torch.nn.Parameter(torch.ones(4, 4))})

    def forward(self, x):
        return x @ self.own["weight"]


def test_modules_that_are_compared_by_value_have_their_names():
    recording = recorded(
        multiply, lambda _: (Multiply().cuda(), torch.ones(2, 4, device="cuda")), (1,), ("dp",)
    )
    assert [op.name for op in recording.ops] == ["aten.mm.default"]
