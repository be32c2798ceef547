"""Published mixtures of experts: as many parameters as published, each sum by hand."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flint.models.jax import moe
from flint.models.jax.moe_sizes import SIZES, tiny
from flint.models.jax.parameters import count, tree_map
from tests.models import dense_mixtures
from tests.models.published_mixtures import PUBLISHED
from tests.support.shared import quick

pytestmark = pytest.mark.xdist_group("models")


@pytest.mark.parametrize("name", SIZES)
def test_parameters_are_as_many_as_published(name):
    by_hand, published = PUBLISHED[name]
    assert count(moe.parameters(SIZES[name])) == by_hand == published


#: One of each kind.
KINDS = [
    "deepseek-v3",
    "deepseek-v2",
    "deepseek-v2-lite",
    "qwen3-30b",
    "gpt-oss-20b",
    "llama4-scout",
    "llama4-maverick",
]


@pytest.mark.parametrize("name", quick(KINDS))
def test_a_tiny_one_computes_what_its_papers_formulas_say(name):
    """The loss, and the gradient along one direction by differences of the formulas' loss."""
    config = replace(tiny(name), dtype=jnp.float32, remat="none", balance=0.0)
    random = np.random.default_rng(0)

    def normal(p):
        return random.standard_normal(p.shape, np.float32)

    params = tree_map(lambda p: p.mean + 0.1 * normal(p), moe.parameters(config))
    along = jax.tree.map(normal, params)
    tokens = random.integers(config.vocabulary, size=(2, config.sequence + 1), dtype=np.int32)
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    step = jax.jit(jax.value_and_grad(lambda p: moe.loss(config, p, batch)))
    found, grads = jax.device_get(step(params))

    def exact(by):
        moved = jax.tree.map(lambda w, d: np.float64(w) + by * d, params, along)
        return dense_mixtures.loss(name, config, moved, batch)

    np.testing.assert_allclose(found, exact(0.0), rtol=1e-5)
    slope = sum(np.vdot(*pair) for pair in zip(*map(jax.tree.leaves, (grads, along)), strict=True))
    np.testing.assert_allclose(slope, (exact(1e-6) - exact(-1e-6)) / 2e-6, rtol=1e-3)
