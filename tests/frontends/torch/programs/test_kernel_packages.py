"""Programs that import flash_attn where it is not installed."""

from __future__ import annotations

import importlib.util
from importlib import metadata

import pytest

pytest.importorskip("torch")
import torch

from flint import load
from flint.errors import FlintError
from flint.frontends.torch.programs import flash_attention, grouped_gemm, kernel_packages
from flint.graph.work import Unit
from tests.support.command_line import flint_with_torch as flint
from tests.support.shared import quick

#: With the package, or by PyTorch's own function; a batch of 2, 4 heads, 2 of keys, 32 positions.
PROGRAM = """
import sys, torch
layer = torch.nn.Linear(64, 128, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
def parts():
    x = torch.ones(2, 32, 64, device="cuda", dtype=torch.bfloat16)
    return layer(x).view(2, 32, 8, 16).split((4, 2, 2), 2)
if sys.argv[1] == "package":
    from flash_attn import flash_attn_func
    def attend():
        return flash_attn_func(*parts(), causal=True, softcap=20.0)
elif sys.argv[1] == "hub":
    from kernels import get_kernel
    kernels = get_kernel("kernels-community/flash-attn3", version=1).flash_attn_interface
    def attend():
        return kernels.flash_attn_func(*parts(), None, True, softcap=20.0)
else:
    def attend():
        q, k, v = (item.transpose(1, 2) for item in parts())
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(q, k, v, is_causal=True, enable_gqa=True)
for _ in range(3):
    attend().sum().backward()
    optimizer.step()
"""

#: A kernel's passes called one by one, as ring attention does (dense or packed); or attention.
RING = """
import sys, torch
layer = torch.nn.Linear(64, 128, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
how = sys.argv[1]
if how != "own":
    from flash_attn import flash_attn_interface as kernels
ends = torch.tensor([0, 32, 64], dtype=torch.int32, device="cuda")
packed = (ends, ends, 32, 32) if how == "varlen" else ()
name = "_flash_attn_varlen" if how == "varlen" else "_flash_attn"
class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        kernel = getattr(kernels, name + "_forward")
        out, level, _, seed = kernel(q, k, v, *packed, dropout_p=0.0, softmax_scale=None,
                                     causal=True, window_size_left=-1, window_size_right=-1)
        ctx.save_for_backward(q, k, v, out, level, seed)
        return out
    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, level, seed = ctx.saved_tensors
        found = [torch.empty_like(item) for item in (q, k, v)]
        kernel = getattr(kernels, name + "_backward")
        kernel(grad, q, k, v, out, level, *found, *packed, dropout_p=0.0, softmax_scale=None,
               causal=True, window_size_left=-1, window_size_right=-1, rng_state=seed)
        return tuple(found)
for _ in range(3):
    x = torch.ones(2, 32, 64, device="cuda", dtype=torch.bfloat16)
    parts = layer(x).view(2, 32, 8, 16).split((4, 2, 2), 2)
    if how == "own":
        q, k, v = (item.transpose(1, 2) for item in parts)
        attention = torch.nn.functional.scaled_dot_product_attention
        out = attention(q, k, v, is_causal=True, enable_gqa=True)
    elif how == "varlen":
        out = Ring.apply(*(item.flatten(0, 1) for item in parts))
    else:
        out = Ring.apply(*parts)
    out.sum().backward()
    optimizer.step()
"""

MAY = """
import torch
try:
    import flash_attn
    raise SystemExit("it was not there")
except ImportError:
    pass
layer = torch.nn.Linear(4, 4, device="cuda")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(3):
    layer(torch.ones(2, 4, device="cuda")).sum().backward()
    optimizer.step()
"""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("flash_attn") is not None, reason="flash_attn is installed"
)


def run(folder, text, *arguments):
    (folder / "train.py").write_text(text)
    done = flint("run", "--world", 1, "-o", "out", "--", "train.py", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return load(folder / "out"), done.stderr


def products(workload):
    (program,) = workload.programs
    return sum(
        item.flops for node in program.graph for item in node.work.items if item.unit is Unit.MATMUL
    )


@pytest.mark.thorough
def test_a_program_that_needs_the_package_has_the_kernels_of_pytorchs_own_attention(tmp_path):
    found, words = run(tmp_path, PROGRAM, "package")
    assert products(found) == products(run(tmp_path, PROGRAM, "own")[0])
    assert "flash_attn is not installed" in words
    assert "flash_attn at train.py:11: without softcap" in words


@pytest.mark.thorough
def test_a_program_that_needs_a_kernel_of_the_hub_has_it(tmp_path):
    found, words = run(tmp_path, PROGRAM, "hub")
    assert products(found) == products(run(tmp_path, PROGRAM, "own")[0])
    assert "the hub's kernel kernels-community/flash-attn3 is recorded" in words


@pytest.mark.thorough
@pytest.mark.parametrize("how", quick(("dense", "varlen"), "dense"))
def test_a_kernels_passes_alone_have_the_products_of_attention(tmp_path, how):
    """Two sequences of 32 positions, in a batch or packed."""
    found, words = run(tmp_path, RING, how)
    assert products(found) == products(run(tmp_path, RING, "own")[0])
    assert "flash_attn is not installed" in words


@pytest.mark.thorough
def test_a_program_that_can_do_without_the_package_does(tmp_path):
    assert "flash_attn" not in run(tmp_path, MAY)[1]


def test_exchanges_have_gradients_by_the_opposite_exchange(package, monkeypatch):
    """As with the package: of 2 ranks that hold the same, a gradient's parts are summed twice."""
    import torch.distributed as dist
    from flash_attn.utils.distributed import all_gather, all_reduce, reduce_scatter

    def gathered(output, part, *_, **__):
        output.copy_(torch.cat([part, part]))

    def scattered(output, whole, **_):
        output.copy_(2 * whole[: len(output)])

    monkeypatch.setattr(dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(dist, "all_gather_into_tensor", gathered)
    monkeypatch.setattr(dist, "reduce_scatter_tensor", scattered)
    monkeypatch.setattr(dist, "all_reduce", lambda x, **_: x.mul_(2))
    x, factors = torch.arange(1.0, 5.0, requires_grad=True), torch.arange(8.0)
    for exchange, given, expected, grad in (
        (all_gather, factors, torch.cat([x, x]), 2 * factors[:4]),
        (reduce_scatter, factors[:2], 2 * x[:2], torch.tensor([0.0, 1, 0, 1])),
        (all_reduce, factors[:4], 2 * x, factors[:4]),
    ):
        out = exchange(x * 1, None)
        assert torch.equal(out, expected)
        assert torch.equal(torch.autograd.grad((out * given).sum(), x)[0], grad)


def test_modules_have_the_functions_that_programs_import(package):
    from flash_attn.bert_padding import pad_input, rearrange, unpad_input  # noqa: F401
    from flash_attn.flash_attn_interface import flash_attn_varlen_func
    from flash_attn.ops.triton.layer_norm import rms_norm_fn

    assert flash_attn_varlen_func is flash_attention.flash_attn_varlen_func
    x, mask = torch.randn(2, 5, 3), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]])
    rows, indices, ends, longest, _ = unpad_input(x, mask)
    assert (ends.tolist(), longest, len(rows)) == ([0, 3, 7], 4, 7)
    assert torch.equal(pad_input(rows, indices, 2, 5), x * mask[..., None])
    weight = torch.randn(3)
    expected = torch.nn.functional.rms_norm(x + 1, (3,), weight, 1e-6)
    normal, total = rms_norm_fn(x, weight, None, residual=torch.ones_like(x), prenorm=True)
    assert torch.equal(total, x + 1) and torch.allclose(normal, expected)
    with pytest.raises(ImportError, match="nothing_like_it"):
        from flash_attn import nothing_like_it  # noqa: F401


@pytest.mark.parametrize("interleaved", (False, True))
def test_rotary_embeddings_turn_pairs_by_the_positions_angles(interleaved):
    """Pairs are complex numbers, multiplied by exp(i angle)."""
    x, angle = torch.randn(2, 7, 3, 8), torch.randn(7, 3)
    turned = flash_attention.apply_rotary_emb(x, angle.cos(), angle.sin(), interleaved)

    def pairs(item):
        item = item[..., :6]
        both = (item[..., ::2], item[..., 1::2]) if interleaved else item.chunk(2, -1)
        return torch.complex(*both)

    torch.testing.assert_close(pairs(turned), pairs(x) * torch.exp(1j * angle)[:, None])
    assert torch.equal(turned[..., 6:], x[..., 6:])


def test_a_rotary_layer_turns_queries_and_keys_from_where_they_begin():
    """The values stay; queries and keys may be given apart."""
    layer = flash_attention.RotaryEmbedding(8)
    qkv = torch.randn(2, 7, 3, 4, 8)
    angle = torch.arange(3, 10)[:, None] / 10000 ** (torch.arange(0, 8, 2) / 8)
    tables = angle.cos(), angle.sin()
    q, k, v = layer(qkv, seqlen_offset=3).unbind(2)
    torch.testing.assert_close(q, flash_attention.apply_rotary_emb(qkv[:, :, 0], *tables))
    torch.testing.assert_close(k, flash_attention.apply_rotary_emb(qkv[:, :, 1], *tables))
    assert torch.equal(v, qkv[:, :, 2])
    other, kv = layer(qkv[:, :, 0], qkv[:, :, 1:], seqlen_offset=3, max_seqlen=7)
    assert torch.equal(other, q) and torch.equal(kv, torch.stack((k, v), 2))


def test_groups_of_rows_are_multiplied_each_with_its_matrix():
    """Rows go to their experts and come back, weighted: as one expert after the other computes."""
    x, weights = torch.randn(6, 16).bfloat16(), torch.randn(3, 16, 8).bfloat16()
    choices = torch.tensor([[0, 2], [2, 1], [0, 1], [2, 0], [1, 2], [0, 2]])
    scores = torch.rand(6, 2).bfloat16()
    rows, places = grouped_gemm.permute(x, choices.int())
    counts = choices.flatten().bincount(minlength=3)
    out = grouped_gemm.unpermute(grouped_gemm.gmm(rows, weights, counts), places, scores)
    each = torch.stack([x.float() @ matrix.float() for matrix in weights])  # [experts, rows, 8]
    picked = each[choices, torch.arange(6)[:, None]] * scores.float()[..., None]
    torch.testing.assert_close(out.float(), picked.sum(1), rtol=0.05, atol=0.1)
    flipped = grouped_gemm.gmm(rows, weights.transpose(1, 2).contiguous(), counts, trans_b=True)
    assert torch.equal(flipped, grouped_gemm.gmm(rows, weights, counts))
    products = grouped_gemm.gmm(rows, flipped, counts, trans_a=True)
    assert products.shape == (3, 16, 8)


def test_attention_with_a_cache_can_be_imported_but_not_called(package):
    from flash_attn import flash_attn_with_kvcache

    with pytest.raises(FlintError, match=r"flash_attn_with_kvcache.* has no stand-in"):
        flash_attn_with_kvcache(torch.ones(1, 1, 2, 8), None, None)


def test_a_package_is_among_those_that_are_installed(package):
    """As transformers tells FlashAttention 2 from a later one."""
    assert metadata.packages_distributions()["flash_attn"] == ["flash-attn"]
    assert metadata.version("flash_attn") == metadata.version("flash-attn") == "2.8.3"
    assert "pytest" in metadata.packages_distributions()
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("grouped_gemm")


def test_a_package_has_its_modules_as_attributes(package):
    kernel_packages.provide(["grouped_gemm"])
    import grouped_gemm as package

    assert package.ops.gmm is grouped_gemm.gmm


def test_an_optimizer_that_deepspeed_compiles_updates_as_pytorchs_does(said):
    """On the device, where the numbers are known from the host, and on the host."""
    real = torch.nn.Parameter(torch.tensor([1.0, -2.0, 3.0]))
    real.grad = torch.tensor([0.5, 0.25, -1.0])
    torch.optim.AdamW([real], lr=0.1, weight_decay=0.2).step()
    found, notes = said("""
        import os, sys, tempfile
        from flint.frontends.torch.recording.known_values import known_value
        from flint.launching.notes import noted
        folder = tempfile.mkdtemp()
        package = os.path.join(folder, "deepspeed", "ops", "op_builder")
        os.makedirs(package)
        with open(os.path.join(package, "builder.py"), "w") as file:
            file.write("class OpBuilder: _loaded_ops = {}")
        sys.path.insert(0, folder)
        from deepspeed.ops.op_builder.builder import OpBuilder
        numbers = 0.1, 0.9, 0.999, 1e-8
        def made(device):
            rows = [0.5, 0.25, -1.0], [1.0, -2.0, 3.0], [0.0] * 3, [0.0] * 3
            return [torch.tensor(row, device=device) for row in rows]
        lists = [[item] for item in made("cuda")]
        OpBuilder._loaded_ops["fused_adam"].multi_tensor_adam(
            2048, torch.zeros(1, device="cuda"), lists, *numbers, 1, 1, 1, 0.2)
        gradient, weight, *averages = made("cpu")
        kernels = OpBuilder._loaded_ops["cpu_adam"]
        kernels.create_adam(0, *numbers, 0.2, True, False)
        kernels.adam_update(0, 1, *numbers, 0.2, True, weight, gradient, *averages)
        say([known_value(lists[1][0]).tolist(), weight.tolist()], sum(noted.values()))
    """)
    assert [pytest.approx(row) for row in found] == [real.tolist()] * 2
    assert notes == 2
