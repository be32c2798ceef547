"""Other ways to split embedding and head, and to accumulate gradients: exchanges derived by hand.

Letters as in ``test_llama3_torch.py``; N parameters, of the tiny model.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from flint.models.torch.llama3 import TINY, training  # noqa: E402
from flint.models.torch.llama3_model import Llama  # noqa: E402
from tests.models.torch.one_rank import exchanges  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch-llama3")

L, D, V, S = TINY.layers, TINY.width, TINY.vocabulary, TINY.sequence
BF16, F32 = 2, 4
with torch.device("meta"):
    N = sum(item.numel() for item in Llama(TINY).parameters())


@pytest.mark.thorough
def test_ends_together_are_one_group_and_gradients_wait_for_the_last_batch():
    """L + 1 groups, each gathered before the forward and before the backward pass of both batches;
    gradients of the last batch, with those of the first, are reduced once, in f32."""
    config = replace(TINY, ends="together", keep="gradients", accumulation=2)
    found = exchanges(training(config, mesh=(2,), axes=("dp",)))
    gathers = 2 * 2 * (L + 1)
    assert found["all_gather", ("dp",)] == (gathers, 4 * BF16 * N // 2, 4 * BF16 * N)
    assert found["reduce_scatter", ("dp",)] == (L + 1, F32 * N, F32 * N // 2)


@pytest.mark.thorough
def test_whole_ends_gather_scores_and_embed_all_positions():
    """Blocks: 2 L gathers of the residual stream (S, D) forward and 2 L backward, and as many
    reduce-scatters.  The head gathers its input, and scatters that one's gradient; scores (S, V)
    are gathered once.  The embedding's gradient is gathered, for each rank has all of its rows."""
    config = replace(TINY, ends="whole", loss_dtype=torch.bfloat16)
    found = exchanges(training(config, mesh=(2,), axes=("tp",)))
    stream, scores = BF16 * S * D, BF16 * S * V
    gathered = (4 * L + 2) * stream + scores
    assert found["all_gather", ("tp",)] == (4 * L + 3, gathered // 2, gathered)
    scattered = (4 * L + 1) * stream
    assert found["reduce_scatter", ("tp",)] == (4 * L + 1, scattered, scattered // 2)
