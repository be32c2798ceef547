"""Random numbers: mean and deviation of what is emitted, by the distribution's formulas."""

from __future__ import annotations

import math

import pytest
import torch

from flint.frontends.torch.emission import emitted
from tests.torch.executing import execute
from tests.torch.real_recording import record

aten = torch.ops.aten

RANDOM = {
    "rand": (lambda: aten.rand.default([4000]), 0.5, 1 / math.sqrt(12)),
    "uniform_": (
        lambda: aten.uniform_.default(torch.empty(4000), -1.0, 3.0), 1.0, 4 / math.sqrt(12),
    ),
    "randn": (lambda: aten.randn.default([4000]), 0.0, 1.0),
    "normal_": (lambda: aten.normal_.default(torch.empty(4000), 2.0, 3.0), 2.0, 3.0),
    "bernoulli_": (lambda: aten.bernoulli_.float(torch.empty(4000), 0.3), 0.3, math.sqrt(0.21)),
    "exponential_": (lambda: aten.exponential_.default(torch.empty(4000), 2.0), 0.5, 0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_have_the_mean_and_deviation_of_their_distribution(name):
    step, mean, deviation = RANDOM[name]
    recorded = record(step)
    (value,), _ = execute(emitted(recorded.recording, strict=True).data, recorded.inputs)
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
