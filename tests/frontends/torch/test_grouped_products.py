"""Grouped matrix products: one kernel where a GPU has it, else one product per group."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from flint.errors import FlintError  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402

TOKENS, EXPERTS, WIDE, NARROW = 24, 4, 16, 8


def of_dtype(dtype):
    def made(mesh):
        tokens = torch.randn(TOKENS, WIDE, device=mesh.device_type, dtype=dtype)
        weights = torch.randn(EXPERTS, WIDE, NARROW, device=mesh.device_type, dtype=dtype)
        return tokens, weights.requires_grad_()

    return made


def step(tokens, weights):
    chosen = torch.empty(TOKENS, device=tokens.device)
    ends = torch.histc(chosen, EXPERTS).cumsum(0).to(torch.int32)
    torch._grouped_mm(tokens, weights, offs=ends).pow(2).sum().backward()


def products(recording):
    return Counter(
        (op.name, *(tuple(item.shape) for item in op.args[:2]))
        for op in recording.ops
        if "mm" in op.name
    )


def test_bfloat16_is_one_kernel():
    recording = record_in_child(step, of_dtype(torch.bfloat16), (2,), ("ep",))
    assert {name for name, *_ in products(recording)} == {"aten._grouped_mm.default"}


def test_float32_is_a_product_of_each_group_that_has_rows():
    recording = record_in_child(
        step, of_dtype(torch.float32), (2,), ("ep",), settings={"routing": (2, 0, 1, 1)}
    )
    # 24 tokens as 2:0:1:1. Forwards, tokens of an expert times its weights; backwards, those
    # tokens' transpose times their gradients, also [WIDE, 0] times [0, NARROW], which writes zeros.
    assert products(recording) == {
        ("aten.mm.out", (12, WIDE), (WIDE, NARROW)): 1,
        ("aten.mm.out", (6, WIDE), (WIDE, NARROW)): 2,
        ("aten.mm.out", (WIDE, 12), (12, NARROW)): 1,
        ("aten.mm.out", (WIDE, 6), (6, NARROW)): 2,
        ("aten.mm.out", (WIDE, 0), (0, NARROW)): 1,
    }


def test_groups_of_unknown_sizes_are_refused_where_the_host_reads_them():
    def unknown(tokens, weights):
        ends = torch.empty(EXPERTS, device=tokens.device).int()
        torch._grouped_mm(tokens, weights, offs=ends)

    with pytest.raises(FlintError, match="an integer tensor's value is read at"):
        record_in_child(unknown, of_dtype(torch.float32), (2,), ("ep",))
