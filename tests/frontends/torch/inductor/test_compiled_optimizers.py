"""Optimizers whose step is compiled."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from tests.frontends.torch.in_child import record_in_child

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


def setup_adam(mesh):
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    return model, optimizer, torch.compile(optimizer.step), torch.randn(ROWS, WIDTH, device="cuda")


@pytest.mark.thorough
def test_numbers_of_steps_on_the_host_are_no_tensors_of_the_kernel():
    """Adam reads parameters, gradients and two moments, and writes all but the gradients."""
    found = record_in_child(step, setup_adam, (1,), ("dp",), compile_for="h100-sxm")
    updates = [op for op in found.ops if op.name.startswith("inductor_kernel.triton")]
    told = [json.loads(op.args[2]) for op in updates]
    assert sum(sum(item["read"]) for item in told) == 4 * 4 * ELEMENTS
    assert sum(sum(item["written"]) for item in told) == 3 * 4 * ELEMENTS
