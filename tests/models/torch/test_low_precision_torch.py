"""FP8 linear layers: as their rounded operands multiply, three products per weight in a capture."""

from __future__ import annotations

import collections
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from flint.graph.work import Unit  # noqa: E402
from flint.models.torch.llama3 import TINY, training  # noqa: E402
from flint.models.torch.low_precision import narrow  # noqa: E402

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def rounded(x, dtype):
    """What stays of ``x`` when its largest element is cast to the type's largest."""
    scale = torch.finfo(dtype).max / x.abs().max()
    return (x * scale).to(dtype).float() / scale


def test_a_layer_and_its_derivatives_are_those_of_rounded_operands():
    """On the CPU's own kernel of ``_scaled_mm``."""
    torch.manual_seed(0)
    x, gradient = torch.randn(4, 16, 64, requires_grad=True), torch.randn(4, 16, 48)
    layer = nn.Linear(64, 48)
    narrow(nn.ModuleList([layer]))
    made = layer(x)
    made.backward(gradient)
    rows, g = x.detach().flatten(0, 1), gradient.flatten(0, 1)
    weight = layer.weight.detach()
    expected = rounded(rows, E4M3) @ rounded(weight, E4M3).t() + layer.bias
    torch.testing.assert_close(made.flatten(0, 1), expected, rtol=1e-3, atol=1e-3)
    expected = rounded(g, E5M2) @ rounded(weight, E4M3)
    torch.testing.assert_close(x.grad.flatten(0, 1), expected, rtol=1e-3, atol=1e-3)
    expected = rounded(g, E5M2).t() @ rounded(rows, E4M3)
    torch.testing.assert_close(layer.weight.grad, expected, rtol=1e-3, atol=1e-3)


def test_blocks_multiply_three_times_per_weight_in_fp8():
    """One rank of two: 1 sequence of 32 tokens, 4 layers with 64 x (8 + 2 x 4 + 8) x 8 weights of
    attention and 3 x 64 x 128 of the network; 2 FLOPs per weight and token, three times."""
    workload = training(replace(TINY, fp8=True), mesh=(2,), axes=("dp",)).capture()
    found = collections.Counter()
    for node in workload.graph:
        for item in node.work.items:
            if item.unit == Unit.MATMUL:
                found[item.dtype] += item.flops
    weights = 4 * (64 * (8 + 2 * 4 + 8) * 8 + 3 * 64 * 128)
    assert found["f8E4M3FN"] == 2 * weights * 32
    assert found["f8E5M2"] == 2 * 2 * weights * 32
