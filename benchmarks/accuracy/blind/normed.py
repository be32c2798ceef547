"""Attention whose queries and keys have norms, in front of the rotation: Gemma 3 and 4, Qwen3.

The norms' weights are ones here, not learned: a vector of a head's elements for a whole layer.

Config(mixer=normed)                                       # in the place of ``layers.attention``
Config(mixer=functools.partial(normed, kernel=kernel))
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from recipes import Recipe

from flint.models.jax.layers import Heads, Kernel, attention, plain, rms_norm, rotary

#: How names of models begin whose sizes do not say so: Gemma 3 Technical Report (2025), section 2
#: ("QK-norm"), Gemma 4 after it, and Qwen3 Technical Report (2025), section 2.
_MODELS = ("Gemma 3", "Gemma 4", "Qwen3")


def has_norms(recipe: Recipe) -> bool:
    """Whether a row's queries and keys have norms."""
    return bool(recipe.sizes.get("qk_norm")) or recipe.model.startswith(_MODELS)


def normed(
    x: jax.Array, layer: Any, heads: Heads, positions: jax.Array, kernel: Kernel = plain
) -> jax.Array:
    """``layers.attention`` of ``x`` (B, S, D) with a norm for each head of queries and keys."""

    def turn(y: jax.Array, _: str) -> jax.Array:
        return rotary(rms_norm(y, jnp.ones(heads.size)), positions, heads.theta)

    return attention(x, layer, heads, positions, kernel, turn)
