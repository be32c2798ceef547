"""Levanter's attention in blocks and its loss: values as ours, and whose runs have them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy"))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import levanter
import levanter_rows
import predict
from recipes import read_recipes

from flint.models.jax.layers import cross_entropy, plain


def _given() -> tuple[jax.Array, ...]:
    """Queries of four heads, keys and values of two, 64 positions."""
    keys = jax.random.split(jax.random.key(0), 3)
    heads = zip(keys, (4, 2, 2), strict=True)
    return tuple(jax.random.normal(key, (2, 64, count, 8)) for key, count in heads)


@pytest.mark.thorough
def test_attention_in_blocks_is_causal_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values and gradients, with two blocks."""
    monkeypatch.setattr(levanter, "BLOCK", 32)
    found = [
        jax.jit(jax.value_and_grad(lambda *x, of=kernel: (of(*x) ** 2).sum(), (0, 1, 2)))(*_given())
        for kernel in (plain, levanter.blockwise)
    ]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), *found)


@pytest.mark.thorough
def test_blocks_above_the_diagonal_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 x 4 blocks 10 are seen: two products each; backwards five more (scores again, weights,
    and the gradients of queries, keys and values)."""
    monkeypatch.setattr(levanter, "BLOCK", 16)
    step = jax.grad(lambda *x: levanter.blockwise(*x).sum(), (0, 1, 2))
    text = jax.jit(step).lower(*_given()).as_text()
    assert text.count("stablehlo.dot_general") == 10 * (2 + 5)


def test_products_have_the_types_of_levanters_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """``levanter.models.flash_attention.flash_attention`` of 1.2.dev1398 with queries in bf16, one
    block: two products in bf16; backwards three that read or give gradients of scores and the
    scores again in bf16, and in f32 that of f32 weights, which gives the values' gradients."""
    monkeypatch.setattr(levanter, "BLOCK", 64)
    given = [x.astype(jnp.bfloat16) for x in _given()]
    step = jax.grad(lambda *x: levanter.blockwise(*x).astype(jnp.float32).sum(), (0, 1, 2))
    text = str(jax.make_jaxpr(step)(*given))
    types = re.findall(r":(\w+)\[[\d,]+\] = dot_general", text)
    assert sorted(types) == ["bf16"] * 6 + ["f32"]
    weights = re.findall(r":(\w+)\[2,2,2,64,64\] = exp", text)
    assert weights == ["bf16", "f32"]


@pytest.mark.thorough
def test_the_loss_is_cross_entropy() -> None:
    logits = jax.random.normal(jax.random.key(1), (2, 8, 32))
    labels = jnp.arange(16).reshape(2, 8)
    ours, theirs = (
        jax.jit(jax.value_and_grad(of))(logits, labels)
        for of in (cross_entropy, levanter.one_hot_cross_entropy)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours, theirs)


@pytest.mark.parametrize(
    ("batch", "name", "attention", "words"),
    [
        ("seventh", "mar-30m-v4", "as-written", "blocks of 1,024"),  # heads of 64
        ("seventh", "mar-50m-h200", "as-written", "blocks of 1,024"),
        ("fourth", "mar-1b4-v5p", "fused", "splash attention"),  # heads of 128
        ("fourth", "mar-1b4-h200", "as-written", "blocks of 1,024"),  # on GPUs whatever heads
    ],
)
def test_runs_have_the_kernel_that_takes_their_heads(batch, name, attention, words) -> None:
    found = predict.expressed(read_recipes(predict.HERE / batch / "recipes.csv")[name])
    assert [part.case.attention for part in found.parts] == [attention]
    assert words in found.differs


def test_compilation_is_spread_over_the_published_steps() -> None:
    """Marin's pages have the sum of the steps' times, compilation included, and their number."""
    for batch in ("fourth", "seventh"):
        text = (predict.HERE / batch / "measured.csv").read_text(encoding="utf-8")
        for name, steps in re.findall(r"^(mar-\S+?),.* / ([\d,]+) steps", text, re.MULTILINE):
            if name != "mar-moe-v4":
                assert levanter_rows.STEPS[name] == int(steps.replace(",", ""))
