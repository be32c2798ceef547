"""Code that is compiled names CUDA, and asks whether it runs there, as on a GPU."""

from __future__ import annotations

import json

import pytest
import torch

from tests.frontends.torch.in_child import record_in_child


def branches(x):
    """A sum of products in half precision on a GPU; sines elsewhere."""
    if not x.is_cuda or x.device.type != "cuda" or x.device != torch.device("cuda", 0):
        return x.sin()
    return (
        x * 2 + torch.arange(64, device="cuda") + torch.ones(64).cuda() + torch.ones(64).to("cuda")
    )


def mixed(x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return x @ x


def setup(function):
    return lambda mesh: (torch.compile(function), torch.empty(64, 64, device="cuda"))


def call(function, x):
    function(x)


def recorded(function):
    found = record_in_child(call, setup(function), (1,), ("dp",), compile_for="h100-sxm")
    assert not found.warnings
    return [op for op in found.ops if "empty" not in op.name]


@pytest.mark.thorough
def test_tensors_are_on_cuda_and_what_is_made_there_is_compiled_with_them():
    (kernel,) = (op for op in recorded(branches) if op.name.startswith("inductor_kernel."))
    # Per element a product, three sums and no sine.
    work = json.loads(kernel.args[2])
    assert "mul" in kernel.name and work["transcendentals"] == 0


@pytest.mark.thorough
def test_products_in_mixed_precision_are_in_that_precision():
    (product,) = (op for op in recorded(mixed) if op.name.startswith("aten.mm"))
    assert {item.dtype for item in product.args} == {"bfloat16"}
