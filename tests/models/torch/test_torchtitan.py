"""The rotation of torchtitan's Llama: the same model, in three kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

import flint  # noqa: E402
from flint.models.torch.layers import STYLES, Block, rotary_table, rotated  # noqa: E402
from flint.models.torch.llama3 import TINY, training  # noqa: E402
from flint.models.torch.torchtitan import complex_table, rotated_pairs  # noqa: E402
from flint.passes import apply  # noqa: E402
from tests.models.torch.one_rank import exchanges  # noqa: E402
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


@pytest.mark.thorough
def test_torchtitans_qwen3_gathers_all_normed_heads_over_tensor_parallel_ranks():
    """``attention.q_norm`` and ``k_norm`` are ``NoParallel`` in ``apply_non_moe_tp`` of its
    ``experiments/qwen3/infra/parallelize.py`` at d240be0c: what they return is made whole.  So each
    block gathers its queries and keys once more, (S, heads, size) in bf16; gradients come back
    split, as attention's are.  Attention itself stays split."""
    found, other = (
        exchanges(training(replace(TINY, style=style), mesh=(2,), axes=("tp",)))
        for style in ("torchtitan, repeated", "llama")
    )
    heads = TINY.heads
    whole = 2 * TINY.layers * TINY.sequence * (heads.queries + heads.keys) * heads.size
    count, sent, received = other["all_gather", ("tp",)]
    expected = count + 2 * TINY.layers, sent + whole // 2, received + whole
    assert found["all_gather", ("tp",)] == expected
    assert found["reduce_scatter", ("tp",)] == other["reduce_scatter", ("tp",)]


def test_torchtitans_models_copied_keys_for_each_head():
    """``repeat_kv`` of its ``experiments/qwen3/model/model.py`` at d240be0c: a copy of keys and one
    of values, and an attention without groups."""
    small = replace(TINY, layers=1)
    blocks = [
        Block(small.width, small.heads, small.hidden, style)
        for style in ("torchtitan, normed", "torchtitan, repeated")
    ]
    blocks[1].load_state_dict(blocks[0].state_dict())
    angles = rotary_table(5, small.heads.size, small.heads.theta)
    table = STYLES["torchtitan, normed"].table(angles, torch.float32)
    x = torch.randn(1, 5, small.width)
    torch.testing.assert_close(blocks[0](x, table), blocks[1](x, table))
    clones = [ran(block, x, table).get("clone", 0) for block in blocks]
    assert clones[1] - clones[0] == 2
