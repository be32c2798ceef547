"""The rotation of torchtitan's Llama: the same model, in three kernels."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import flint  # noqa: E402
from flint.models.torch.layers import STYLES, rotary_table, rotated  # noqa: E402
from flint.models.torch.torchtitan import complex_table, rotated_pairs  # noqa: E402
from flint.passes import apply  # noqa: E402
from tests.models.torch.test_huggingface_torch import NORM, ran  # noqa: E402


def test_pairs_are_rotated_by_one_product():
    """The same angles for neighbours as ``rotated`` has for elements of the two halves."""
    table, x = rotary_table(5, 8, 10000.0), torch.randn(2, 5, 3, 8)
    halves = torch.cat((x[..., ::2], x[..., 1::2]), dim=-1)
    turned = rotated_pairs(x, complex_table(table, x.dtype))
    torch.testing.assert_close(
        torch.cat((turned[..., ::2], turned[..., 1::2]), dim=-1), rotated(halves, table)
    )
    found = ran(rotated_pairs, x.bfloat16(), complex_table(table, x.dtype))
    assert {name: found[name] for name in ("_to_copy", "mul")} == {"_to_copy": 2, "mul": 1}


def test_norms_before_pytorchs_kernel_were_eight():
    """``RMSNorm`` of torchtitan's ``models/norms.py`` of 2024, which is Llama's; PyTorch's own was
    as many until its pull request 153666."""
    norm = STYLES["torchtitan, written"].norm(8)
    assert ran(norm.bfloat16(), torch.ones(1, 8).bfloat16()) == NORM


def given(mesh):
    x = torch.empty((1, 1024, 16, 128), dtype=torch.bfloat16, device="cuda", requires_grad=True)
    return x, torch.empty((1024, 64), dtype=torch.complex64, device="cuda"), torch.empty_like(x)


def train(x, table, grad):
    x.grad = None
    rotated_pairs(x, table).backward(grad)


@pytest.mark.thorough
def test_the_compiler_leaves_complex_numbers_to_pytorchs_kernels():
    """What PyTorch's compiler makes of it for an H100, and what an opened step has."""
    step = flint.capture(train, mesh=(1,), axes=("dp",), setup=given, framework="torch")
    compiled = apply(step.capture(level="optimized", target="h100").programs[0].graph, "kernel")
    opened = apply(step.capture(options={"fuse": True}).programs[0].graph, "inductor")
    moved = [
        [(node.work.read, node.work.written) for node in graph if node.work.written >= 2**20]
        for graph in (compiled, opened)
    ]
    assert sorted(moved[0]) == sorted(moved[1])
    for graph in (compiled, opened):
        assert sum(node.op == "aten.mul.Tensor" for node in graph) == 2
