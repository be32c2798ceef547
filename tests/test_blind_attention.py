"""Attention of rows: the kernel that their recipe states, or none."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import predict
from attending import FLASH3, attending, flash3, stated
from recipes import read_recipes

from flint.cost.kernels import kernel_seconds
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import WorkloadGraph, with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem

ROWS = read_recipes(predict.HERE / "third" / "recipes.csv")


@pytest.mark.parametrize(
    ("name", "attention", "words"),
    [
        ("ax-7b1-v5p-256", "as-written", "attention as XLA runs it"),
        ("ax-hc3b-v5p-512", "fused", "JAX's first Pallas kernel of attention"),
        ("mt-8b-v6e-64", "fused", "splash attention"),
    ],
)
def test_rows_on_tpus_have_the_attention_that_their_recipe_states(name, attention, words):
    found = predict.expressed(ROWS[name])
    assert [part.case.attention for part in found.parts] == [attention]
    assert words in found.differs


def test_a_run_without_a_fused_kernel_has_none() -> None:
    """Transformer Engine for ROCm before its pull request 81; the same model on an H100 has one."""
    rows = read_recipes(predict.HERE.parent / "given" / "recipes.csv")
    mended, other = (predict.expressed(rows[f"te72-{name}-fp8"]) for name in ("mi300x", "h100"))
    assert {part.case.attention for part in mended.parts} == {"as-written"}
    assert {part.case.attention for part in other.parts} == {"fused"}
    assert "attention as written" in mended.differs and "attention" not in other.differs


def attention(name: str, flops: float) -> WorkloadGraph:
    """One kernel of fused attention."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    operand = builder.input(tables.type(tensor_type((8192, 8192), "bf16")))
    item = WorkItem(Unit.MATMUL, "bf16", flops, (1, 8192, 8192, round(flops / 2 / 8192**2)))
    result = (tensor_type((8192, 8192), "bf16"),)
    builder.compute(name, Role.CONTRACTION, (operand, operand), result, Work((item,), 0, 0))
    return with_tables(builder.finish(()), tables.finish())


@pytest.mark.parametrize("positions", FLASH3)
def test_flash_attention_3_takes_as_long_as_was_published(positions) -> None:
    """4 x 48 heads of 128 elements on an H100, forward and backward: meta-pytorch/tritonbench, pull
    request 1267.  Of the scores, S (S + 1) / 2 a head, two products; backward five."""
    system = load_system("dgx-h100")
    kernels, in_steps = (attending(*flash3(positions), steps=each) for each in (False, True))
    forward = 2 * 2 * 4 * 48 * 128 * positions * (positions + 1) / 2
    for name, flops, us in zip(
        ("flash_attention", "flash_attention_backward"), (forward, 2.5 * forward),
        FLASH3[positions], strict=True,
    ):  # fmt: skip
        graph = attention(name, flops)
        assert kernels(graph, system) == pytest.approx(us * 1e-6, rel=0.08)
        # Others lose as much in steps as products: of the peak 0.6 are known, and alone 0.8.
        ratio = (in_steps(graph, system) / kernels(graph, system))[0]
        assert ratio == pytest.approx(0.8 / 0.6, rel=0.02)


def test_flash_attention_3_loses_nothing_in_a_step() -> None:
    """DeepSeek's profile of a training step on an H800, an H100 with slower links
    (deepseek-ai/profile-data): four forward kernels of 1,237 us in the mean and four backward ones
    of 3,779 us, beside exchanges.  Of 4,096 positions and 128 heads, queries and keys of 192
    elements and values of 128, half of the scores: forward one product of each size, backward three
    and two."""
    scores = 4096**2 / 2 * 128 * 2
    flops = scores * (192 + 128), scores * (3 * 192 + 2 * 128)
    reached = sum(flops) / (1237e-6 + 3779e-6) / 989.4e12
    forward, backward = flash3(4096)
    assert reached == pytest.approx(3.5 / (1 / forward + 2.5 / backward), rel=0.02)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [("ao-b200-8b-bf16", "cuDNN's attention"), ("ao-h100-8b-bf16", ""), ("tt-h200-8b-32", "")],
)
def test_torchtitan_asks_cudnn_on_blackwell_only(name, kernel) -> None:
    """Its pull request 1196 of May 2025; on an H100 it ran FlashAttention 2 (its issue 1042)."""
    assert stated(read_recipes(predict.HERE / "recipes.csv")[name])[1] == kernel


@pytest.mark.parametrize(("words", "share"), [("compile", 0.41), ("", 0.7)])
def test_what_is_opened_and_not_compiled_stands_for_a_librarys_kernels(words, share) -> None:
    """Transformer Engine's attention is cuDNN's; torch.compile leaves PyTorch's."""
    rows = read_recipes(predict.HERE / "recipes.csv")
    [part, *_] = predict.expressed(rows["tt-h200-8b-32"]).parts
    case = replace(part.case, run=replace(part.case.run, parallelism=words))
    assert predict.accuracy.system_of(case).accelerator.kernel.flash_attention_efficiency == share


def test_rows_have_the_attention_of_the_library_that_their_recipe_states() -> None:
    rows = read_recipes(predict.HERE / "recipes.csv")
    found = predict.expressed(rows["nanochat-d26-bf16"])
    assert found.differs.endswith("FlashAttention 3")
    found = predict.expressed(ROWS["te-mi300x-8b-fp8-b2"])
    assert found.differs.endswith("Composable Kernel's attention")
    assert "FlashAttention" not in predict.expressed(rows["tt-qwen32b-8-c"]).differs


def test_deterministic_attention_with_dropout_on_blackwell_is_not_cudnns() -> None:
    """Transformer Engine's pull request 2584: cuDNN's backward pass is deterministic there from
    9.18.1, "no dbias or dropout"; FlashAttention 2 is, at 350 TFLOP/s (tritonbench, 171)."""
    rows = read_recipes(predict.HERE / "fourth" / "recipes.csv")
    kernels, name = stated(rows["mg-7b-tp4-gb200"])
    assert name == "FlashAttention 2" and stated(rows["mg-7b-tp4-h100"])[1] == ""
    graph = attention("flash_attention", 350e12)
    assert kernels(graph, load_system("gb200-nvl72"))[0] == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("system", ["dgx-h100", "hgx-h200"])
def test_pytorchs_flash_attention_has_the_rate_of_its_authors(system) -> None:
    """Shah et al., FlashAttention-3 (2024), figures 5 and 6: FlashAttention 2 at 8,192 positions,
    causal, heads of 128: 333 TFLOP/s forward and 318 backward, which has 2.5 times the products."""
    model = load_system(system).accelerator.kernel
    together = 3.5 / (1 / 333 + 2.5 / 318) / 989.4
    assert model.flash_attention_efficiency == model.eager_attention_efficiency
    assert model.flash_attention_efficiency * model.matmul_alone == pytest.approx(
        together, rel=0.02
    )


@pytest.mark.parametrize(
    "kernels", [kernel_seconds, attending(0.326), attending(0.326, steps=True)]
)
def test_flash_attention_2_takes_as_long_on_one_device_as_was_published(kernels) -> None:
    """As above, of 2 x 16 heads: forward four FLOPs for each of half of the scores and element."""
    system = load_system("dgx-h100")
    alone = replace(system.accelerator, kernel=system.accelerator.kernel.on_one_device())
    forward = 4 * 32 * 8192**2 / 2 * 128
    published = forward / 333e12 + 2.5 * forward / 318e12
    names = (f"aten._scaled_dot_product_flash_attention{word}" for word in ("", "_backward"))
    graphs = [
        attention(name, flops) for name, flops in zip(names, (forward, 2.5 * forward), strict=True)
    ]
    taken = sum(float(kernels(each, replace(system, accelerator=alone))[0]) for each in graphs)
    assert taken == pytest.approx(published, rel=0.04)


def test_pytorchs_attention_on_an_mi300x_is_not_that_of_cudnn() -> None:
    """230 TFLOP/s, forward and backward: ROCm/flash-attention, issue 142; and the last wave."""
    graph = attention("aten._scaled_dot_product_flash_attention", 230e12)
    assert kernel_seconds(graph, load_system("mi300x-8"))[0] == pytest.approx(1.0, rel=0.1)


def test_attention_of_cudnn_in_eager_mode_has_its_own_share() -> None:
    rows = read_recipes(predict.HERE / "fourth" / "recipes.csv")
    kernels, name = stated(rows["trl-8b-1m-h100"])
    assert name == "cuDNN's attention"
    system = load_system("dgx-h100")
    eager = attention("aten._scaled_dot_product_flash_attention", 1e15)
    model = system.accelerator.kernel
    ratio = (kernel_seconds(eager, system) / kernels(eager, system))[0]
    shares = model.attention_efficiency / model.eager_attention_efficiency
    assert ratio == pytest.approx(shares, rel=0.02)
