"""Ops of a CPU's profile that call lighter ones are nodes of their own, with their FLOPs."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from flint.graph.work import Unit
from flint.post_execution.converting import convert_traces

ROWS, IN, OUT = 4, 8, 16


def products(made, tmp_path, *inputs):
    """FLOPs of each product in a profile of ``made(*inputs)``."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        made(*inputs)
    path = tmp_path / "rank0.json"
    profiler.export_chrome_trace(str(path))
    [program] = convert_traces([path]).programs
    return [
        sum(item.flops for item in node.work.items if item.unit is Unit.MATMUL)
        for node in program.graph
        if any(item.unit is Unit.MATMUL for item in node.work.items)
    ]


@pytest.mark.parametrize("bias", [True, False])
def test_a_product_that_copies_its_bias_first_is_a_product(bias, tmp_path):
    layer = torch.nn.Linear(IN, OUT, bias=bias)
    assert products(layer, tmp_path, torch.ones(ROWS, IN)) == [2 * ROWS * IN * OUT]


def test_products_of_a_gradient_with_a_bias_are_all_there(tmp_path):
    """Forward, for the weights and for the input: as many FLOPs each."""
    layer = torch.nn.Linear(IN, OUT)
    x = torch.ones(ROWS, IN, requires_grad=True)
    assert products(lambda: layer(x).sum().backward(), tmp_path) == [2 * ROWS * IN * OUT] * 3
