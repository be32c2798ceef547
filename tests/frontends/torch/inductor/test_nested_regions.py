"""A region that is one graph within another, as a model's blocks are compiled once."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.frontends.torch.in_child import record_in_child

WIDTH, LAYERS, ROWS = 64, 3, 8


def setup(mesh):
    norm, linear = nn.LayerNorm(WIDTH).cuda(), nn.Linear(WIDTH, WIDTH).cuda()

    @torch.compiler.nested_compile_region
    def block(x):
        return linear(norm(x))

    def model(x):
        for _ in range(LAYERS):
            x = block(x)
        return x

    return torch.compile(model), torch.empty(ROWS, WIDTH, device="cuda")


def step(model, x):
    model(x).sum().backward()


@pytest.mark.thorough
def test_each_call_of_a_region_runs_its_kernels():
    """A normalisation and a product forward; two products backward, the gradients of the weight and
    of the normalised input."""
    found = record_in_child(step, setup, (1,), ("dp",), compile_for="h100-sxm")
    assert not found.warnings
    names = [op.name for op in found.ops]
    backward = next(at for at, name in enumerate(names) if "ones_like" in name)
    forward = [name for name in names[:backward] if "empty" not in name and "sum" not in name]
    norm, product = forward[:2]  # versions of PyTorch name the kernel by different ops
    assert norm.startswith("inductor_kernel.triton_per_fused_") and product == "aten.addmm.out"
    assert forward == [norm, product] * LAYERS
    assert sum("mm" in name.split(".")[1] for name in names[backward:]) == 2 * LAYERS
