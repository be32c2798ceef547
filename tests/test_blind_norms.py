"""Rows whose queries and keys have norms, as far as their models do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import predict  # noqa: E402
from normed import attends, has_norms, normed, normed_after  # noqa: E402
from recipes import read_recipes  # noqa: E402
from torch_models import config_of  # noqa: E402

from flint.models.jax.layers import Heads  # noqa: E402

ROWS = read_recipes(predict.HERE / "recipes.csv")


@pytest.mark.parametrize(
    ("row", "of_heads", "after"),
    [
        ("iw-gemma4-31b-64", True, True),
        ("iw-gemma4-26b-64", True, True),
        ("v6e-gemma3-12b-1024", True, True),
        ("iw-qwen235-256-bf16", True, False),
        ("iw-llama70-64-fp8", False, False),
        ("iw-gptoss120-64", False, False),
    ],
)
def test_models_have_the_norms_that_maxtext_gives_them(row, of_heads, after) -> None:
    """``use_qk_norm`` in src/maxtext/models/gemma3.py and gemma4.py, configs/models/qwen3-*.yml;
    ``use_post_attn_norm`` and ``use_post_ffw_norm`` of configs/models/gemma*.yml."""
    assert (has_norms(ROWS[row]), normed_after(ROWS[row])) == (of_heads, after)


@pytest.mark.parametrize(
    ("row", "norms"),
    [("iw-gemma4-31b-64", 3), ("v6e-gemma3-12b-1024", 2), ("iw-llama70-64-fp8", 0)],
)
def test_gemma_4_norms_values_too(row, norms, monkeypatch) -> None:
    """``use_v_norm=True`` of gemma4.py, beside ``use_qk_norm``; gemma3.py has the latter alone."""
    made: list[int] = []
    monkeypatch.setattr("normed.rms_norm", lambda x, weight: (made.append(1), x)[1])
    layer = dict.fromkeys(("wq", "wk", "wv", "wo"), jnp.ones((16, 16)))
    heads = Heads(queries=2, keys=2, size=8)
    attends(ROWS[row])(jnp.ones((1, 4, 16)), layer, heads, jnp.arange(4))
    assert len(made) == norms


def test_heads_are_normed_before_they_are_rotated() -> None:
    """A mean square of one for each head (Zhang and Sennrich, 2019), which no rotation changes."""
    heads, seen = Heads(queries=4, keys=2, size=8), []

    def kernel(q, k, v):
        seen.extend((q, k, v))
        return q.reshape(*q.shape[:2], -1)

    keys = iter(jax.random.split(jax.random.key(0), 5))
    sizes = {"wq": (16, 32), "wk": (16, 16), "wv": (16, 16), "wo": (32, 16)}
    layer = {name: 3 * jax.random.normal(next(keys), size) for name, size in sizes.items()}
    normed(jax.random.normal(next(keys), (1, 5, 16)), layer, heads, jnp.arange(5), kernel)
    squares = [jnp.mean(jnp.square(item), -1) for item in seen]
    assert jnp.allclose(squares[0], 1, atol=1e-3) and jnp.allclose(squares[1], 1, atol=1e-3)
    assert not jnp.allclose(squares[2], 1, atol=0.5)


@pytest.mark.parametrize(
    ("row", "style"),
    [("tt-qwen32b-32-a", "torchtitan, repeated"), ("tt-gb200-qwen3-8b-bf16", "torchtitan, normed")],
)
def test_torchtitans_qwen3_is_that_of_its_time(row, style) -> None:
    """``repeat_kv`` in its experiments/qwen3 of 2025; ``enable_gqa`` in models/common/attention.py
    at b5bcd76c of August 2026."""
    assert config_of(ROWS[row]).style == style
