"""Dropless mixtures: exchanges and products by hand, at stated routings; accumulation."""

from __future__ import annotations

import collections
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flint.graph.routing import routing_of
from flint.models.jax import moe
from flint.models.jax.moe import TINY, training
from flint.models.jax.parameters import tree_map
from flint.passes import apply
from tests.support.shared import quick

pytestmark = pytest.mark.xdist_group("models")

RAGGED = replace(TINY, dispatch="ragged")
#: A device has one sequence of 16 tokens with 2 experts each, of 64 elements of 2 bytes; a product
#: of an expert has 64 x 128 weights; 4 devices share 8 experts.
ROWS, ROW, WEIGHTS, LAYERS = 16 * 2, 64 * 2, (64, 128), 2


def counted(config, kinds, **options):
    """(bytes in, bytes out) of exchanges, FLOPs and sizes of grouped products, of one device."""
    found = collections.Counter()
    for block, times in training(config, mesh=(2, 4)).capture(options=options).graph.walk():
        for node in block:
            if node.op in kinds and node.communication is not None:
                found[node.communication.bytes_in, node.communication.bytes_out] += times
            elif node.op in kinds:
                found[node.work.flops, frozenset(node.work.items[0].dims)] += times
    return dict(found)


EXCHANGES, PRODUCTS = {"ragged_all_to_all", "custom_call"}, {"mhlo.ragged_dot", "chlo.ragged_dot"}


@pytest.mark.thorough
def test_without_a_routing_buffers_hold_all_that_could_come():
    """There and back, forward, again and backward: 4 devices may send one all they have."""
    own, most = ROWS * ROW, 4 * ROWS * ROW
    found = counted(RAGGED, EXCHANGES)
    assert found == {(own, most): 3 * LAYERS, (most, own): 3 * LAYERS}


@pytest.mark.parametrize("routing", quick(["balanced", "zipf:1"], "balanced"))
def test_at_a_routing_exchanges_and_products_are_those_of_the_busiest_device(routing):
    """3 products forward, again, and twice backward; their FLOPs are the mean device's."""
    there = -(-int(1e6 * ROWS * routing_of(routing).busiest(8, 4)) // 10**6)
    found = counted(RAGGED, EXCHANGES | PRODUCTS, routing=routing)
    product = 2 * ROWS * math.prod(WEIGHTS), frozenset({1, there, *WEIGHTS})
    exchanges = collections.Counter()
    exchanges[ROWS * ROW, there * ROW] += 3 * LAYERS
    exchanges[there * ROW, ROWS * ROW] += 3 * LAYERS
    assert found == {**exchanges, product: (3 + 3 + 6) * LAYERS}


@pytest.mark.thorough
def test_room_of_its_own_bounds_what_comes():
    config = replace(RAGGED, experts=replace(RAGGED.experts, room=1.5))
    assert {size for sizes in counted(config, EXCHANGES) for size in sizes} == {
        ROWS * ROW, 48 * ROW,
    }  # fmt: skip


@pytest.mark.thorough
def test_microbatches_exchange_each_their_own():
    plain = counted(replace(TINY, remat="none"), {"all_to_all"})
    four = counted(replace(TINY, remat="none", microbatches=4), {"all_to_all"})
    assert four == {size: 4 * times for size, times in plain.items()}


@pytest.mark.thorough
def test_gradients_of_microbatches_are_those_of_the_whole_batch():
    """Without the balancing loss, and room for all, what a token gives depends on its sequence."""
    config = replace(
        TINY, dispatch="ragged", balance=0.0, dtype=jnp.float32, remat="none", microbatches=3
    )
    random = np.random.default_rng(0)
    params = tree_map(
        lambda p: p.mean + 0.1 * random.standard_normal(p.shape, np.float32), moe.parameters(config)
    )
    tokens = random.integers(config.vocabulary, size=(3, 2, config.sequence), dtype=np.int32)
    parts = {"tokens": tokens, "targets": tokens}
    whole = {key: item.reshape(6, -1) for key, item in parts.items()}

    def loss(params, batch):
        return moe.loss(config, params, batch)

    found = jax.jit(moe.accumulated(loss))(params, parts)
    exact = jax.jit(jax.value_and_grad(loss))(params, whole)
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6),
        found, exact,
    )  # fmt: skip


@pytest.mark.thorough
def test_permuted_rows_are_gathered_in_both_passes_and_never_scattered():
    """There and back, forward, again and backward, a row for each choice of a token."""
    config = replace(TINY, dispatch="permuted", balance=0.0)
    captured = training(config, mesh=(8,), axes=("data",)).capture()
    rows, gathers, scatters = (config.sequence * config.experts.chosen, config.width), 0, 0
    for block, times in captured.graph.walk():
        for node in block:
            moved = any(kind.shape == rows for kind in node.result_types)
            gathers += times * (node.op == "gather" and moved)
            scatters += times * ("scatter" in node.op and moved)
    assert (gathers, scatters) == (6 * config.layers, 0)


def test_grouped_products_take_in_nothing_and_end_in_nothing():
    """Three forward, three again, six backward; each has rows, matrices and sizes of groups."""
    config = replace(TINY, dispatch="permuted", balance=0.0)
    graph = apply(training(config, mesh=(8,), axes=("data",)).capture().graph, "kernel")
    found = [node for block, _ in graph.walk() for node in block if node.op in PRODUCTS]
    assert len(found) == 3 + 3 + 6
    assert all(len(node.operand_types) == 3 and len(node.work.items) == 1 for node in found)
