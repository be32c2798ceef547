"""Ops that this machine has no kernel for, recorded by hand, against what they are made of."""

from __future__ import annotations

import math

import pytest
import torch

from flint.frontends.torch.emission import emitted
from flint.graph.work import Unit
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.read.reader import read_mlir
from flint.stablehlo.walker import walk
from tests.frontends.torch.checking import assert_equal
from tests.frontends.torch.executing import execute
from tests.frontends.torch.lowering_cases.inputs import half, normal
from tests.frontends.torch.real_recording import by_hand


@pytest.mark.parametrize("eps", [1e-5, None])
def test_fused_rms_norm_is_pytorchs_rms_norm(eps):
    x, w = normal(3, 6), normal(6)
    theirs = torch.nn.functional.rms_norm(x, (6,), w, eps)
    known = torch.finfo(x.dtype).eps if eps is None else eps
    rstd = (x.square().mean(-1, keepdim=True) + known).rsqrt()
    recording = by_hand("aten._fused_rms_norm.default", [x, w], [theirs, rstd], {0}, (6,), {1}, eps)
    outputs, _ = execute(emitted(recording, strict=True).data, [x, w])
    for ours, expected in zip(outputs, (theirs, rstd), strict=True):
        assert_equal(ours, expected)


def test_fused_rms_norm_backward_is_the_derivative_of_rms_norm():
    grad, x, w = normal(3, 6), normal(3, 6).requires_grad_(), normal(6).requires_grad_()
    torch.nn.functional.rms_norm(x, (6,), w, 1e-5).backward(grad)
    rstd = (x.detach().square().mean(-1, keepdim=True) + 1e-5).rsqrt()
    recording = by_hand(
        "aten._fused_rms_norm_backward.default", [grad, x, rstd, w], [x, w],
        {0}, {1}, (6,), {2}, {3}, (True, True),
    )  # fmt: skip
    tensors = [grad, x.detach(), rstd, w.detach()]
    outputs, _ = execute(emitted(recording, strict=True).data, tensors)
    for ours, theirs in zip(outputs, (x.grad, w.grad), strict=True):
        assert_equal(ours, theirs)


def test_a_product_in_another_dtype_is_computed_in_it():
    """GPUs have ``torch.addmm(..., out_dtype=torch.float32)`` of half floats."""
    bias, x, y = normal(3, 5), half(3, 4), half(4, 5)
    theirs = torch.addmm(bias, x.float(), y.float(), beta=2, alpha=3)
    recording = by_hand(
        "aten.addmm.dtype", [bias, x, y], [theirs], {0}, {1}, {2}, "torch.float32", beta=2, alpha=3
    )
    outputs, _ = execute(emitted(recording, strict=True).data, [bias, x, y])
    assert_equal(outputs[0], theirs)


@pytest.mark.parametrize("heads", [4, 2])
def test_device_flash_attention_and_its_derivative_are_those_of_plain_attention(heads):
    q = normal(2, 4, 8, 16).requires_grad_()
    k, v = (normal(2, heads, 8, 16).requires_grad_() for _ in range(2))
    grad = normal(2, 4, 8, 16)
    many = [item.repeat_interleave(4 // heads, 1) for item in (k, v)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = torch.nn.functional.scaled_dot_product_attention(q, *many, is_causal=True)
    out.backward(grad)
    scores = (q @ many[0].mT / 4).masked_fill(torch.ones(8, 8).triu(1).bool(), -math.inf)
    lse = scores.logsumexp(-1)
    forward = by_hand(
        "aten._scaled_dot_product_flash_attention.default", [q, k, v], [out, lse],
        {0}, {1}, {2}, 0.0, True, False, scale=0.25,
    )  # fmt: skip
    plain = [item.detach() for item in (q, k, v)]
    outputs, _ = execute(emitted(forward, strict=True).data, plain)
    for ours, theirs in zip(outputs, (out.detach(), lse.detach()), strict=True):
        assert_equal(ours, theirs)
    backward = by_hand(
        "aten._scaled_dot_product_flash_attention_backward.default",
        [grad, q, k, v, out, lse], [q, k, v],
        {0}, {1}, {2}, {3}, {4}, {5}, None, None, 8, 8, 0.0, True, None, None, scale=0.25,
    )  # fmt: skip
    tensors = [grad, *plain, out.detach(), lse.detach()]
    outputs, _ = execute(emitted(backward, strict=True).data, tensors)
    for ours, theirs in zip(outputs, (q.grad, k.grad, v.grad), strict=True):
        assert_equal(ours, theirs)


def test_device_attention_of_cudnn_and_its_derivative_are_those_of_plain_attention():
    """Its log-sum-exp has a last dim of 1; a mask has no gradient."""
    q, k, v = (normal(2, 3, 8, 16).requires_grad_() for _ in range(3))
    bias, grad = normal(2, 3, 8, 8), normal(2, 3, 8, 16)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    out.backward(grad)
    lse = (q @ k.mT / 4 + bias).logsumexp(-1, keepdim=True)
    seed = torch.tensor(0)
    forward = by_hand(
        "aten._scaled_dot_product_cudnn_attention.default",
        [q, k, v, bias], [out, lse, seed, seed], {0}, {1}, {2}, {3}, True,
    )  # fmt: skip
    plain = [item.detach() for item in (q, k, v, bias)]
    outputs, _ = execute(emitted(forward, strict=True).data, plain)
    for ours, theirs in zip(outputs[:2], (out.detach(), lse.detach()), strict=True):
        assert_equal(ours, theirs)
    backward = by_hand(
        "aten._scaled_dot_product_cudnn_attention_backward.default",
        [grad, q, k, v, bias, out, lse, seed], [q, k, v],
        {0}, {1}, {2}, {3}, {5}, {6}, {7}, {7}, {4}, None, None, 8, 8, 0.0, False,
    )  # fmt: skip
    tensors = [grad, *plain, out.detach(), lse.detach(), seed]
    outputs, _ = execute(emitted(backward, strict=True).data, tensors)
    for ours, theirs in zip(outputs, (q.grad, k.grad, v.grad), strict=True):
        assert_equal(ours, theirs)


def test_device_efficient_attention_with_a_bias_and_its_derivative_are_those_of_plain_attention():
    q, k, v = (normal(2, 3, 8, 16).requires_grad_() for _ in range(3))
    bias = normal(2, 3, 8, 8).requires_grad_()
    grad = normal(2, 3, 8, 16)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    out.backward(grad)
    lse = (q @ k.mT / 4 + bias).logsumexp(-1)
    seed = torch.tensor(0)
    forward = by_hand(
        "aten._scaled_dot_product_efficient_attention.default",
        [q, k, v, bias], [out, lse, seed, seed], {0}, {1}, {2}, {3}, True,
    )  # fmt: skip
    plain = [item.detach() for item in (q, k, v, bias)]
    outputs, _ = execute(emitted(forward, strict=True).data, plain)
    for ours, theirs in zip(outputs[:2], (out.detach(), lse.detach()), strict=True):
        assert_equal(ours, theirs)
    backward = by_hand(
        "aten._scaled_dot_product_efficient_attention_backward.default",
        [grad, q, k, v, bias, out, lse, seed], [q, k, v, bias],
        {0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}, {7}, 0.0, (True,) * 4,
    )  # fmt: skip
    tensors = [grad, *plain, out.detach(), lse.detach(), seed]
    outputs, _ = execute(emitted(backward, strict=True).data, tensors)
    for ours, theirs in zip(outputs, (q.grad, k.grad, v.grad, bias.grad), strict=True):
        assert_equal(ours, theirs)


@pytest.mark.parametrize(
    ("name", "tensors", "expected", "arguments"),
    [
        ("aten._copy_from.default", [half(3)], lambda x: x.float(), ({0},)),
        ("aten._efficientzerotensor.default", [], lambda: torch.zeros(2, 3), ((2, 3),)),
    ],
)
def test_an_op_of_which_only_devices_have_a_kernel(name, tensors, expected, arguments):
    result = expected(*tensors)
    recording = by_hand(name, tensors, [result], *arguments)
    (ours,), _ = execute(emitted(recording, strict=True).data, tensors)
    assert torch.equal(ours, result)


def attention_by_hand(q, k, v, grad, probability):
    """Forward and backward recordings of a device's kernel, and their tensors."""
    lse = normal(*q.shape[:3])
    forward = by_hand(
        "aten._scaled_dot_product_flash_attention.default", [q, k, v], [q, lse],
        {0}, {1}, {2}, probability, False, False,
    )  # fmt: skip
    backward = by_hand(
        "aten._scaled_dot_product_flash_attention_backward.default",
        [grad, q, k, v, q, lse], [q, k, v],
        {0}, {1}, {2}, {3}, {4}, {5}, None, None, 8, 8, probability, False, None, None,
    )  # fmt: skip
    return emitted(forward, strict=True).data, emitted(backward, strict=True).data


def test_attention_with_dropout_has_the_derivative_of_what_it_computes():
    """Central differences along a random direction, in float64."""
    q, k, v, grad = (normal(1, 2, 8, 4, dtype=torch.float64) for _ in range(4))
    direction = [normal(1, 2, 8, 4, dtype=torch.float64) for _ in range(3)]
    forward, backward = attention_by_hand(q, k, v, grad, 0.25)

    def loss(step):
        moved = [x + step * d for x, d in zip((q, k, v), direction, strict=True)]
        return float((execute(forward, moved)[0][0] * grad).sum())

    out, lse = execute(forward, [q, k, v])[0]
    grads = execute(backward, [grad, q, k, v, out, lse.to(torch.float32)])[0]
    slope = sum(float((g * d).sum()) for g, d in zip(grads, direction, strict=True))
    assert slope == pytest.approx((loss(1e-4) - loss(-1e-4)) / 2e-4, rel=1e-4)
    plain = execute(attention_by_hand(q, k, v, grad, 0.0)[0], [q, k, v])[0][0]
    assert not torch.allclose(out, plain)


def test_a_grouped_product_has_the_flops_of_one_product_of_all_rows():
    rows, groups, out = half(16, 32), half(4, 32, 24), half(16, 24)
    ends = torch.tensor([4, 8, 8, 16], dtype=torch.int32)
    recording = by_hand("aten._grouped_mm.default", [rows, groups, ends], [out], {0}, {1}, {2})
    (node,) = walk(read_mlir(emitted(recording, strict=True).data), None, WalkOptions()).graph
    assert [item.flops for item in node.work.items if item.unit == Unit.MATMUL] == [
        2 * 16 * 32 * 24
    ]


def narrow(*shape):
    return normal(*shape).to(torch.float8_e4m3fn)


@pytest.mark.parametrize("scales", [((), ()), ((6, 1), (1, 10))], ids=["per tensor", "per row"])
def test_a_scaled_product_is_that_of_its_operands_times_their_scales(scales):
    a, b, bias = narrow(6, 32), narrow(10, 32).t(), normal(10).bfloat16()
    scale_a, scale_b = (normal(*shape).abs() for shape in scales)
    expected = (a.float() @ b.float() * scale_a * scale_b + bias.float()).bfloat16()
    tensors = [a, b, scale_a, scale_b, bias]
    recording = by_hand(
        "aten._scaled_mm.default", tensors, [expected], {0}, {1}, {2}, {3}, {4}, None,
        torch.bfloat16,
    )  # fmt: skip
    data = emitted(recording, strict=True).data
    [node] = [n for n in walk(read_mlir(data, "step")).graph if "scaled_mm" in n.op]
    [product] = [item for item in node.work.items if item.unit == Unit.MATMUL]
    assert (product.dtype, product.dims) == ("f8E4M3FN", (1, 6, 10, 32))
    assert node.work.read == 6 * 32 + 32 * 10 + 4 * (scale_a.numel() + scale_b.numel()) + 2 * 10
    (ours,), _ = execute(data, tensors)
    assert_equal(ours, expected)


def test_a_scaled_product_with_scales_of_blocks_is_a_block_scaled_one():
    """A power of two for each 32 of 64 elements along the sum."""
    a, b = narrow(128, 64), narrow(128, 64).t()
    scales = [torch.ones(128 * 2, dtype=torch.float8_e8m0fnu) for _ in range(2)]
    result = torch.zeros(128, 128, dtype=torch.bfloat16)
    recording = by_hand(
        "aten._scaled_mm.default", [a, b, *scales], [result], {0}, {1}, {2}, {3}, None, None,
        torch.bfloat16,
    )  # fmt: skip
    data = emitted(recording).data
    [node] = [n for n in walk(read_mlir(data, "step")).graph if "scaled_mm" in n.op]
    [item] = node.work.items
    assert (item.unit, item.dtype, item.flops) == (Unit.MATMUL, "mxf8", 2 * 128 * 128 * 64)
