"""Attention of the blind rows on TPUs: the kernel that their recipe states, or none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import predict
from recipes import read_recipes

ROWS = read_recipes(predict.HERE / "third" / "recipes.csv")


@pytest.mark.parametrize(
    ("name", "attention", "words"),
    [
        ("ax-7b1-v5p-256", "as-written", "attention as XLA runs it"),
        ("ax-hc3b-v5p-512", "fused", "JAX's first Pallas kernel of attention"),
        ("mt-8b-v6e-64", "fused", "splash attention"),
    ],
)
def test_rows_on_tpus_have_the_attention_that_their_recipe_states(name, attention, words):
    found = predict.expressed(ROWS[name])
    assert [part.case.attention for part in found.parts] == [attention]
    assert words in found.differs
