"""The loss in tiles: what it costs more, and what not; ``test_llama3`` has its values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flint.models.jax.llama3 import TINY, training
from tests.support.nodes import communications, product_flops

pytestmark = pytest.mark.xdist_group("models")


@pytest.fixture(scope="module")
def captured():
    config = replace(TINY, sequences=4, vocabulary=512)
    return config, [
        training(replace(config, tiles=tiles), mesh=(8,), axes=("data",)).capture()
        for tiles in (0, 4)
    ]


def test_the_backward_pass_computes_scores_again(captured):
    """``_chunked_cross_entropy_loss_bwd`` of MaxText's vocabulary_tiling.py takes the gradient of
    each tile's loss anew: one more product of T x D activations with the D x V head, 2 T D V."""
    config, workloads = captured
    whole, tiled = (product_flops(*each.programs) for each in workloads)
    tokens = config.sequences * config.sequence
    assert tiled - whole == 2 * tokens * config.width * config.vocabulary


def test_the_heads_gradient_is_reduced_once(captured):
    """libtpu 0.0.42 compiles a loop over tiles for eight devices of TPU v6e so: one gathering of
    the weights and one reduction in front of and behind the loops, none in them."""
    config, workloads = captured
    kinds = [
        sorted(
            (str(node.communication.kind), times)
            for node, times in communications(each)
            if config.vocabulary in node.result_types[0].shape
        )
        for each in workloads
    ]
    assert kinds[0] == kinds[1] == [("all_gather", 1)] * 2 + [("reduce_scatter", 1)] * 2
