"""Splash attention in models: its values, and its products counted by blocks."""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest

from flint.models.jax import llama3, splash
from flint.models.jax.layers import Heads, plain
from tests.support.shared import quick

pytestmark = pytest.mark.xdist_group("models")

SIZE, QUERIES, KEYS, LENGTH, LAYERS = 128, 4, 2, 2048, 3
CONFIG = replace(
    llama3.TINY, layers=LAYERS, width=256, sequence=LENGTH, sequences=1, remat="full",
    heads=Heads(queries=QUERIES, keys=KEYS, size=SIZE), mixer=splash.splash_attention,
)  # fmt: skip


@pytest.mark.thorough
def test_values_are_those_of_attention_that_is_spelled_out(monkeypatch):
    made = functools.partial(splash.kernels.make_splash_mha, interpret=True)
    monkeypatch.setattr(splash.kernels, "make_splash_mha", made)
    monkeypatch.setattr(splash, "BLOCK", 128)
    splash._kernel.cache_clear()
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = [(1, 256, heads, SIZE) for heads in (QUERIES, KEYS, KEYS)]
    q, k, v = (jax.random.normal(*item) for item in zip(keys, shapes, strict=True))
    try:
        np.testing.assert_allclose(splash.splash(q, k, v), plain(q, k, v), atol=2e-5)
    finally:
        splash._kernel.cache_clear()


@pytest.mark.thorough
@pytest.mark.parametrize("mesh", quick([(2,), (1, 2)], (2,)))
def test_kernels_multiply_the_blocks_that_a_causal_mask_leaves(mesh):
    """Of 4 x 4 blocks of 512 it leaves 10.  A block is 2 products in the forward pass, which full
    rematerialisation runs twice; the kernel for keys and values has 4 (scores again, dP, dK and dV)
    and that for queries 3 (scores and dP again, dQ)."""
    axes = ("data", "model")[: len(mesh)]
    workload = llama3.training(CONFIG, mesh=mesh, axes=axes).capture()
    assert not any("upper bound" in text for text in workload.warnings)
    heads = QUERIES // mesh[-1] if "model" in axes else QUERIES
    block = 2 * splash.BLOCK * splash.BLOCK * SIZE
    kernels = [
        (sum(item.flops for item in node.work.items if item.unit.name == "MATMUL"), times)
        for graph, times in workload.programs[0].graph.walk()
        for node in graph
        if "splash" in str(node.op) or "custom_call" in str(node.op)
    ]
    products = sum(flops * times for flops, times in kernels)
    assert products == LAYERS * heads * 10 * block * (2 + 2 + 4 + 3)
