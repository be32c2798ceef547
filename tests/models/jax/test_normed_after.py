"""Layers with a norm after attention and after the feed-forward network, besides those in front."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from flint.models.jax import llama3, moe
from flint.models.jax.parameters import count, initial
from tests.support.nodes import product_flops

pytestmark = pytest.mark.xdist_group("models")

MIXED = replace(moe.TINY, experts=replace(moe.TINY.experts, shared=32), dispatch="einsum")


@pytest.mark.parametrize(("room", "config", "norms"), [(llama3, llama3.TINY, 2), (moe, MIXED, 4)])
def test_a_layer_has_the_norms_of_gemmas(room, config, norms):
    """Gemma 3 has ``post_self_attention_norm`` and ``post_ffw_norm``; in Gemma 4's mixtures the
    shared network and the experts have one each, too (MaxText's gemma3.py and gemma4.py)."""
    before, after = (
        count(room.parameters(replace(config, normed_after=each))) for each in (False, True)
    )
    assert after - before == norms * config.layers * config.width


@pytest.mark.thorough
@pytest.mark.parametrize(("room", "config"), [(llama3, llama3.TINY), (moe, MIXED)])
@pytest.mark.parametrize("silent", ["attention_after", "mlp_after"])
def test_what_a_part_adds_has_a_mean_square_of_one(room, config, silent):
    """Zhang and Sennrich (2019), equation 4, with weights of one; the other part's are zeros."""
    config = replace(config, normed_after=True, dtype=jnp.float32)
    blocks = initial(room.parameters(config), jax.random.key(0))["blocks"]
    layer = jax.tree.map(lambda stack: 10 * stack[0], blocks)  # far from what needs no norm
    norms = {name: jnp.ones(config.width) for name in ("attention_after", "mlp_after")}
    x = jax.random.normal(jax.random.key(1), (2, 16, config.width))
    made = room.block(config, x, layer | norms | {silent: jnp.zeros(config.width)})
    added = (made[0] if room is moe else made) - x
    assert jnp.allclose(jnp.mean(jnp.square(added), -1), 1, atol=1e-2)


@pytest.mark.parametrize(("remat", "again"), [("full", 1), ("outputs", 0)])
def test_a_norm_after_the_network_needs_its_last_product_again(remat, again):
    """What is added to the residual stream is not needed backwards (``matmul_flops`` in
    test_llama3.py), but a norm's gradient needs what it normed: the product of T x F activations
    with the F x D weights, 2 T F D FLOPs a layer, unless its result is kept."""
    mesh, flops = (2, 1), []
    for after in (False, True):
        config = replace(llama3.TINY, remat=remat, normed_after=after)
        workload = llama3.training(config, mesh=mesh).capture()
        flops.append(product_flops(*workload.programs))
    tokens = config.sequences * config.sequence  # of a device
    more = again * config.layers * 2 * tokens * config.hidden * config.width
    assert flops[1] - flops[0] == more
