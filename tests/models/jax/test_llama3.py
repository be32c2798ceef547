"""Llama 3: published sizes, one result however it is split, and counts derived by hand."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flint.models.jax import adamw
from flint.models.jax.llama3 import (
    LLAMA3_8B,
    LLAMA3_70B,
    LLAMA3_405B,
    parameters,
    train_8b,
    train_405b,
)
from flint.models.jax.parameters import Parameter, count, initial
from tests.models.jax import variants
from tests.support.children import answer_of
from tests.support.nodes import product_flops
from tests.support.shared import chosen, quick

pytestmark = pytest.mark.xdist_group("models")


@pytest.mark.parametrize(
    ("config", "published"),
    [
        # Sum of the tensors' sizes in the released checkpoints (model.safetensors.index.json).
        (LLAMA3_8B, 8_030_261_248),
        (LLAMA3_70B, 70_553_706_496),
        (LLAMA3_405B, 405_853_388_800),
    ],
)
def test_parameters_are_as_many_as_published(config, published):
    assert count(parameters(config)) == published


@pytest.fixture(scope="module")
def runs(request):
    names = chosen(request, "variant")
    return answer_of(Path(__file__).with_name("llama3_runs.py"), *names, devices=8)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "variant",
    quick(
        [
            "fsdp and tensor", "unrolled", "no remat", "dots", "outputs", "sequence parallel",
            "hybrid", "context", "shared keys", "attention", "tiles", "tiles, hybrid",
        ],
        "sequence parallel",
    ),
)  # fmt: skip
def test_every_form_and_mesh_gives_the_losses_of_one_device(variant, runs):
    np.testing.assert_allclose(runs[variant], runs["one device"], rtol=2e-5)


@pytest.mark.parametrize("variant", quick(["ungated"]))
def test_an_ungated_network_gives_the_losses_of_one_device(variant, runs):
    np.testing.assert_allclose(runs[variant], runs[f"{variant}, one device"], rtol=2e-5)


@pytest.mark.thorough
def test_training_lowers_the_loss(runs):
    first, _, last, _ = runs["one device"]
    assert last < first


@pytest.mark.thorough
def test_adamw_is_optaxs():
    tree = {"w": Parameter((8, 16), (None, None)), "b": Parameter((16,), (None,))}
    params = initial(tree, jax.random.key(0))
    state = initial(adamw.state(tree), jax.random.key(1))
    config = adamw.AdamW(rate=1e-2, clip=0.5)
    theirs = optax.chain(
        optax.clip_by_global_norm(0.5), optax.adamw(1e-2, b1=0.9, b2=0.95, weight_decay=0.1)
    )
    their_params, their_state = params, theirs.init(params)
    update = jax.jit(lambda *now: adamw.update(*now, config))
    their_update = jax.jit(theirs.update)
    for number in range(3):
        grads = initial(tree, jax.random.key(number + 5))
        params, state = update(params, grads, state)
        updates, their_state = their_update(grads, their_state, their_params)
        their_params = optax.apply_updates(their_params, updates)
    for name in tree:
        np.testing.assert_allclose(params[name], their_params[name], rtol=1e-4)


def matmul_flops(config, tokens):
    """Of a step over ``tokens`` tokens with full rematerialisation, all devices together.

    A product of (T, K) with (K, N) takes 2 T K N.  Forward once, again in the recomputation, and
    twice (for either operand) in the backward pass.  The last product of a block, ``down``, is not
    recomputed: only its gradient's operands are needed, not its result.  The embedding is a gather.
    cuDNN's kernel computes the S (S + 1) / 2 scores that the mask leaves, forward with 2 products
    (twice, for the recomputation) and backward with 5.
    """
    width, heads = config.width, config.heads
    inner, outer = heads.queries * heads.size, heads.keys * heads.size
    projections = 2 * tokens * width * (inner + 2 * outer + inner)
    scores = tokens * (config.sequence + 1) * inner
    gate_or_up = 2 * tokens * width * config.hidden
    block = 4 * (projections + 2 * gate_or_up) + 3 * gate_or_up + (2 + 2 + 5) * scores
    head = 3 * 2 * tokens * width * config.vocabulary
    return config.layers * block + head


@pytest.mark.parametrize(
    ("step", "config", "mesh"), [(train_8b, LLAMA3_8B, (64, 8)), (train_405b, LLAMA3_405B, (32, 8))]
)
def test_matmul_flops_are_those_of_the_formula(step, config, mesh):
    """All sizes are multiples of the mesh's, so that nothing is padded or done twice."""
    workload = step.at(mesh=mesh).capture()
    tokens = mesh[0] * config.sequence
    assert product_flops(*workload.programs) * mesh[0] * mesh[1] == matmul_flops(config, tokens)


def test_weights_are_gathered_in_bfloat16_once_per_use():
    """8B on 64x8: each of the seven weights of a block is gathered over ``data`` (its parameters
    are float32, cast before they are sent) in the forward pass, and again in the recomputation."""
    workload = train_8b.capture()
    [program] = workload.programs
    gathered = [
        (times, node.result_types[0])
        for graph, times in program.graph.walk()
        for node in graph
        if node.communication is not None
        and node.communication.kind == "all_gather"
        and times == LLAMA3_8B.layers
    ]
    width, hidden, inner, outer = 4096, 14336, 4096, 1024
    shard = 8  # of the tensor axis
    weights = 2 * width * (2 * inner + 2 * outer + 3 * hidden) // shard  # bytes, bfloat16
    assert all(kind.dtype == "bf16" for _, kind in gathered)
    assert sum(kind.bytes for _, kind in gathered) == 2 * weights
    assert jnp.bfloat16 == LLAMA3_8B.dtype


@pytest.mark.thorough
@pytest.mark.parametrize("step", [variants.shared_keys, train_405b])
def test_more_parts_than_key_heads_make_xla_replicate_nothing(step):
    """XLA logs where it gathers a whole tensor for lack of a better way."""
    assert step.capture().warnings == {}
