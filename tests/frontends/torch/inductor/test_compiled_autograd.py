"""A backward pass that is one graph of its own, found while it runs (compiled autograd)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.frontends.torch.in_child import record_in_child

WIDTH, ROWS = 64, 32


def setup(mesh):
    torch._dynamo.config.compiled_autograd = True
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)).cuda()

    @torch.compile
    def step(x):
        model(x).square().mean().backward()

    return step, torch.empty(ROWS, WIDTH, device="cuda")


def run(step, x):
    step(x)


@pytest.mark.thorough
def test_products_and_kernels_of_both_passes_are_compiled():
    """Two products forward; backward the gradients of two weights and of what is between."""
    found = record_in_child(run, setup, (1,), ("dp",), compile_for="h100-sxm")
    assert not found.warnings
    names = [op.name for op in found.ops if "empty" not in op.name]
    products = [name for name in names if name.split(".")[1] in ("mm", "addmm")]
    assert len(products) == 2 + 3
    # Nothing else is an op of its own but the gradients, which are the compiled graph's results.
    others = {name for name in names if name not in products and "triton" not in name}
    assert others <= {"aten.ones_like.default"}, others
