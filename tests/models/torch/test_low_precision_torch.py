"""FP8 linear layers: as their rounded operands multiply, three products per weight in a capture."""

from __future__ import annotations

import collections
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from flint.graph.work import Unit  # noqa: E402
from flint.models.torch.llama3 import TINY, training  # noqa: E402
from flint.models.torch.low_precision import HISTORY, move_on, narrow  # noqa: E402

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


@pytest.mark.thorough
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


def test_delayed_scales_are_those_of_the_largest_elements_of_steps_before():
    """The first step has no history and casts as it is; the second uses what the first has seen,
    the one after a history of zeros forgets it."""
    torch.manual_seed(0)
    layer = nn.Linear(64, 48, bias=False)
    narrow(nn.ModuleList([layer]), delayed=True)
    weight = layer.weight.detach()
    first, second = (torch.randn(16, 64) * size for size in (3.0, 5.0))

    def cast(x, dtype, scale):
        most = torch.finfo(dtype).max
        return (x * scale).clamp(-most, most).to(dtype).float() / scale

    def expected(x, by):
        scales = [1.0 if item is None else 448 / item.abs().max() for item in by]
        return cast(x, E4M3, scales[0]) @ cast(weight, E4M3, scales[1]).t()

    torch.testing.assert_close(layer(first), expected(first, (None, None)), rtol=1e-3, atol=1e-3)
    move_on([layer])
    made = layer(second)
    torch.testing.assert_close(made, expected(second, (first, weight)), rtol=1e-3, atol=1e-3)
    gradient = torch.randn(16, 48)
    made.backward(gradient)
    move_on([layer])
    seen = torch.stack([second.abs().max(), weight.abs().max(), gradient.abs().max()])
    torch.testing.assert_close(layer.history[:, 0], seen)
    largest = torch.stack([second.abs().max(), weight.abs().max(), gradient.abs().max()])
    torch.testing.assert_close(layer.scales, torch.tensor([448.0, 448.0, 57344.0]) / largest)
    for _ in range(HISTORY):
        move_on([layer])
    assert layer.scales.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.thorough
def test_delayed_scaling_agrees_on_the_largest_elements_once_a_step():
    """Of 4 layers of 7 matrices each, three float32 a matrix: activations, weights, gradients."""
    workload = training(replace(TINY, fp8="delayed"), mesh=(2,), axes=("dp",)).capture()
    reduced = [
        n.communication for n in workload.graph
        if n.op == "all_reduce" and n.communication.reduction == "maximum"
    ]  # fmt: skip
    assert [item.operand_bytes for item in reduced] == [(4 * 7 * 3 * 4,)]
    found = collections.Counter()
    for node in workload.graph:
        for item in node.work.items:
            if item.unit == Unit.MATMUL:
                found[item.dtype] += item.flops
    weights = 4 * (64 * (8 + 2 * 4 + 8) * 8 + 3 * 64 * 128)
    assert found["f8E4M3FN"] == 2 * weights * 32
    assert found["f8E5M2"] == 2 * 2 * weights * 32
