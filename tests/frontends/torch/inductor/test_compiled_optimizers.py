"""Optimizers whose step is compiled, in steps and in whole programs."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from flint.workload.loading import load
from tests.frontends.torch.in_child import record_in_child
from tests.support.command_line import flint

WIDTH, ROWS = 64, 32
#: A layer's weights and bias, twice.
ELEMENTS = 2 * (WIDTH * WIDTH + WIDTH)


def setup(mesh):
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    update = torch.compile(optimizer.step)
    return model, optimizer, update, torch.randn(ROWS, WIDTH, device="cuda")


def step(model, optimizer, update, x):
    model(x).square().mean().backward()
    update()
    optimizer.zero_grad(set_to_none=False)


def test_a_compiled_update_is_one_kernel_over_all_parameters():
    """SGD with momentum reads parameters, gradients and momenta, writes parameters and momenta."""
    found = record_in_child(step, setup, (1,), ("dp",), compile_for="h100-sxm")
    assert not found.warnings
    [update] = [op for op in found.ops if op.name.startswith("inductor_kernel.triton")]
    assert "for_fused" in update.name
    told = json.loads(update.args[2])
    assert sum(told["read"]) == 3 * 4 * ELEMENTS
    assert sum(told["written"]) == 2 * 4 * ELEMENTS


PROGRAM = """
import torch
from torch import nn

model = nn.Sequential(nn.Conv1d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 30, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

@torch.compile
def step(x):
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()

for _ in range(5):
    step(torch.randn(4, 8, 32, device="cuda"))
"""


@pytest.mark.thorough
def test_a_step_that_ends_within_compiled_code_is_captured(tmp_path):
    """Dynamo does not trace what then writes the capture."""
    (tmp_path / "train.py").write_text(PROGRAM)
    out = tmp_path / "out"
    line = ("run", "--world", 2, "--level", "optimized", "--target", "h100", "-o", out, "--")
    done = flint(*line, "python", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "eager code" not in done.stderr
    [program] = load(out).programs
    assert sum("triton_for_fused" in node.op for node in program.graph) == 1
