"""Tokens put into places of buffers, and taken out of them again; what has no place is dropped.

The idea: an index beyond the last place is nowhere: nothing is put there, and zeros are taken.

    from_places(in_places(x, index, places), index)     # x, k times, but for dropped tokens
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def in_places(x: jax.Array, index: jax.Array, places: int) -> jax.Array:
    """Tokens ``x`` (B, S, D) in their places (B, places, D); elsewhere zeros.

    Args:
        x: tokens.
        index: (B, S, k) of int32; beyond the last place: dropped.
        places: number of places of a sequence.
    """
    batch, _, width = x.shape
    tokens = jnp.repeat(x, index.shape[2], axis=1)  # as often as they have experts
    empty = jnp.zeros((places, width), x.dtype)
    fill = jax.vmap(lambda index, tokens: empty.at[index].add(tokens, mode="drop"))
    return fill(index.reshape(batch, -1), tokens)


def from_places(made: jax.Array, index: jax.Array) -> jax.Array:
    """What is in the places (B, S, k) of ``made`` (B, places, D): (B, S, k, D); dropped: zeros."""
    take = jax.vmap(lambda made, index: made.at[index].get(mode="fill", fill_value=0))
    return take(made, index)
