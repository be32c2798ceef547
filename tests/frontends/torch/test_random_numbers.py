"""Random numbers: mean and deviation of what is emitted, by the distribution's formulas."""

from __future__ import annotations

import math

import pytest
import torch

from flint.frontends.torch.emission import emitted
from tests.frontends.torch.executing import execute
from tests.frontends.torch.lowering_cases.random_numbers import RANDOM
from tests.frontends.torch.real_recording import record

aten = torch.ops.aten


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_have_the_mean_and_deviation_of_their_distribution(name):
    step, mean, deviation = RANDOM[name]
    recorded = record(step)
    (value,), _ = execute(emitted(recorded.recording, strict=True).data, recorded.inputs)
    value = value.double()
    assert abs(float(value.mean()) - mean) < 5 * deviation / math.sqrt(4000)
    assert abs(float(value.std()) - deviation) < 0.1 * deviation


def test_dropout_keeps_what_its_mask_keeps_and_scales_it():
    recorded = record(lambda x: aten.native_dropout.default(x, 0.25, True), torch.ones(4000))
    (value, kept), _ = execute(emitted(recorded.recording, strict=True).data, recorded.inputs)
    torch.testing.assert_close(value, kept.float() / 0.75)
    assert abs(float(kept.float().mean()) - 0.75) < 0.04


def test_randperm_is_a_permutation():
    recorded = record(lambda: aten.randperm.default(50))
    (value,), _ = execute(emitted(recorded.recording, strict=True).data, recorded.inputs)
    assert sorted(value.tolist()) == list(range(50))


def test_multinomial_draws_places_with_weight_and_none_twice():
    weights = torch.tensor([[0.0, 1.0, 2.0, 0.0, 3.0]]).expand(500, 5).contiguous()
    recorded = record(lambda w: aten.multinomial.default(w, 2), weights)
    (places,), _ = execute(emitted(recorded.recording, strict=True).data, recorded.inputs)
    assert set(places.flatten().tolist()) == {1, 2, 4}
    assert (places[:, 0] != places[:, 1]).all()
    # The first is drawn by weight: 3 of 6, deviation sqrt(p (1 - p) / n).
    share = float((places[:, 0] == 4).float().mean())
    assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(500)
