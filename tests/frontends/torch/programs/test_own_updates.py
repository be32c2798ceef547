"""Steps of programs whose optimizer is none of PyTorch's."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from flint import load  # noqa: E402
from flint.frontends.torch.programs.own_updates import OwnUpdates  # noqa: E402
from tests.programs.comparing import PRODUCTS, of_ranks  # noqa: E402
from tests.support.command_line import flint_with_torch as flint  # noqa: E402

ADD = torch.ops.aten.add_.Tensor


class Program:
    """Calls, backward passes and writes of a model with one weight."""

    def __init__(self):
        with FakeTensorMode():
            self.model, self.gradient = torch.nn.Linear(4, 4), torch.empty(4, 4)
        self.steps = 0
        self.updates = OwnUpdates(self.ended)

    def ended(self):
        self.steps += 1

    def run(self, events):
        """Forward, backward; w writes the weight, i inside of a model, g a gradient; r reads."""
        written = {"w": self.model.weight, "i": self.model.weight.detach(), "g": self.gradient}
        for event in events:
            if event == "f":
                self.updates.called(self.model)
            elif event == "b":
                self.updates.ran_backward()
            elif event == "r":
                weight = self.model.weight
                self.updates.op(torch.ops.aten.add.Tensor, (self.gradient, weight), False)
            else:
                self.updates.op(ADD, (written[event], self.gradient), event == "i")
        return self.steps


@pytest.mark.parametrize(
    ("events", "steps"),
    [
        ("fbwfbwfbw", 2),  # the last one has no end yet
        ("fbfbwfbfbwf", 2),  # gradients of two batches
        ("fbwwwf", 1),
        ("fbgfbgf", 0),
        ("fbrfbrf", 0),
        ("wfbf", 0),  # the weight is initialised
        ("fibfbif", 0),  # a model writes its own weight, as an embedding does for its largest norm
    ],
)
def test_a_step_begins_where_a_model_is_called_after_an_update(events, steps):
    assert Program().run(events) == steps


def test_a_program_with_an_optimizer_has_no_such_steps():
    program = Program()
    program.updates.over()
    assert program.run("fbwfbwf") == 0


def test_a_model_that_is_called_without_gradients_belongs_to_the_step():
    program = Program()
    program.run("fbw")
    with torch.no_grad():
        program.run("f")
    assert program.steps == 0
    assert program.run("f") == 1


ENDLESS = """
import torch
class Optimizer:
    def __init__(self, weights):
        self.weights = list(weights)
        self.means = [torch.zeros_like(weight) for weight in self.weights]
    @torch.no_grad()
    def step(self):
        torch._foreach_lerp_(self.means, [weight.grad for weight in self.weights], 0.1)
        torch._foreach_add_(self.weights, self.means, alpha=-0.01)
        for weight in self.weights:
            weight.grad = None
layer = torch.nn.Linear(4, 2).cuda()
optimizer = Optimizer(layer.parameters())
while True:
    for _ in range(3):
        layer(torch.ones(5, 4, device="cuda")).sum().backward()
    optimizer.step()
"""


def test_an_optimizer_of_the_programs_own_ends_steps_of_several_batches(tmp_path):
    (tmp_path / "train.py").write_text(ENDLESS)
    out = tmp_path / "out"
    done = flint("run", "--world", 1, "-o", out, "--", "python", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [rank] = of_ranks(load(out), PRODUCTS)
    # Three batches: a product forward, and one backward for the weight, of 2 x 5 x 4 x 2 FLOPs.
    assert rank["flops"] == 3 * 2 * (2 * 5 * 4 * 2)
