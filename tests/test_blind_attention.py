"""Attention of rows: the kernel that their recipe states, or none."""

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


def test_a_run_without_a_fused_kernel_has_none() -> None:
    """Transformer Engine for ROCm before its pull request 81; the same model on an H100 has one."""
    rows = read_recipes(predict.HERE.parent / "given" / "recipes.csv")
    mended, other = (predict.expressed(rows[f"te72-{name}-fp8"]) for name in ("mi300x", "h100"))
    assert {part.case.attention for part in mended.parts} == {"as-written"}
    assert {part.case.attention for part in other.parts} == {"fused"}
    assert "attention as written" in mended.differs and "attention" not in other.differs
