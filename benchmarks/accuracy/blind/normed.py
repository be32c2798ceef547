"""Norms beyond Llama's: of queries and keys, in front of the rotation (Gemma 3 and 4, Qwen3), of
values (Gemma 4), and of what attention and feed-forward network make (Gemma 2 to 4).

The weights of norms of heads are ones here, not learned: a vector of a head's elements for a whole
layer.

Config(mixer=normed)                                       # in the place of ``layers.attention``
Config(mixer=functools.partial(normed, kernel=kernel), normed_after=normed_after(recipe))
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from recipes import Recipe

from flint.models.jax.layers import Heads, Kernel, attention, plain, rms_norm, rotary

#: How names of models begin whose sizes do not say so: Gemma 3 Technical Report (2025), section 2
#: ("QK-norm"), Gemma 4 after it, and Qwen3 Technical Report (2025), section 2.
_MODELS = ("Gemma 3", "Gemma 4", "Qwen3")
#: The same of models whose values have norms: ``use_v_norm`` of MaxText's gemma4.py.
_OF_VALUES = ("Gemma 4",)
#: The same of models whose layers have a norm after each part, besides that in front: Gemma 2
#: (2024), section 2 ("Post-norm and pre-norm with RMSNorm"), Gemma 3, section 2, and gemma4.py.
_AFTER = ("Gemma 2", "Gemma 3", "Gemma 4")


def has_norms(recipe: Recipe) -> bool:
    """Whether a row's queries and keys have norms."""
    return bool(recipe.sizes.get("qk_norm")) or recipe.model.startswith(_MODELS)


def normed_after(recipe: Recipe) -> bool:
    """Whether what attention and feed-forward network of a row make has a norm."""
    return recipe.model.startswith(_AFTER)


def attends(recipe: Recipe) -> Any:
    """Self-attention with the norms of a row's heads, as ``layers.attention``."""
    if not has_norms(recipe):
        return attention
    values = recipe.model.startswith(_OF_VALUES)
    return functools.partial(normed, values=True) if values else normed


def normed(
    x: jax.Array, layer: Any, heads: Heads, positions: jax.Array, kernel: Kernel = plain,
    values: bool = False,
) -> jax.Array:  # fmt: skip
    """``layers.attention`` of ``x`` (B, S, D) with a norm for each head of queries and keys, and
    of ``values``."""

    def turn(y: jax.Array, _: str) -> jax.Array:
        return rotary(rms_norm(y, jnp.ones(heads.size)), positions, heads.theta)

    def mixed(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return kernel(q, k, rms_norm(v, jnp.ones(heads.size)) if values else v)

    return attention(x, layer, heads, positions, mixed, turn)
