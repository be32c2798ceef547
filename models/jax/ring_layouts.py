"""Which positions of a sequence the devices of a ring have, and which queries see which keys.

contiguous    one part of the sequence; later positions are masked, not left out, so that all
              devices do the same work: all scores
zigzag        of 2 n parts the r-th and the r-th from the end, as Megatron-LM, MaxText and
              PyTorch balance it: half of the keys are visible, and only these are computed

r-th device gets the keys of an earlier device: all its queries see the front one
                              of a later device: its back queries see both
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp


class Part(NamedTuple):
    """A part of a device's positions.

    Attributes:
        take: array and the dim of positions -> its part.
        put: a part, the dim and what the other positions have -> the whole.
    """

    take: Callable[[jax.Array, int], jax.Array]
    put: Callable[[jax.Array, int, float], jax.Array]


class Piece(NamedTuple):
    """Queries and the keys that they are multiplied with.

    Attributes:
        queries, keys: which.
        visible: bool, scalar or (S, S) of the parts; None: all see all.
    """

    queries: Part
    keys: Part
    visible: jax.Array | None


#: Rank of a device, positions that it has, and hops that keys have made to it (0: its own) -> what
#: meets.
Layout = Callable[[jax.Array, int, "jax.Array | int"], list[Piece]]

_WHOLE = Part(lambda x, dim: x, lambda x, dim, fill: x)
_FRONT = Part(
    lambda x, dim: jnp.split(x, 2, dim)[0],
    lambda x, dim, fill: jnp.concatenate([x, jnp.full_like(x, fill)], dim),
)
_BACK = Part(
    lambda x, dim: jnp.split(x, 2, dim)[1],
    lambda x, dim, fill: jnp.concatenate([jnp.full_like(x, fill), x], dim),
)


def _either(front: jax.Array) -> Part:
    """The front half where ``front`` (bool scalar) holds, else the back half."""
    return Part(
        lambda x, dim: jnp.where(front, *jnp.split(x, 2, dim)),
        lambda x, dim, fill: jnp.concatenate(
            [jnp.where(front, x, fill), jnp.where(front, fill, x)], dim
        ),
    )


def _causal(length: int) -> jax.Array:
    """What queries see of the keys of the same positions."""
    return jnp.tril(jnp.ones((length, length), bool))


def contiguous(rank: jax.Array, length: int, hops: jax.Array | int) -> list[Piece]:
    """A ``Layout``: device r has the r-th part of the sequence."""
    own = isinstance(hops, int) and not hops
    return [Piece(_WHOLE, _WHOLE, _causal(length) if own else rank >= hops)]


def zigzag(rank: jax.Array, length: int, hops: jax.Array | int) -> list[Piece]:
    """A ``Layout``: device r of n has the parts r and 2 n - 1 - r of 2 n."""
    if isinstance(hops, int) and not hops:
        seen = _causal(length // 2)
        return [
            Piece(_FRONT, _FRONT, seen), Piece(_BACK, _FRONT, None), Piece(_BACK, _BACK, seen),
        ]  # fmt: skip
    both = _either(rank >= hops)
    return [Piece(_BACK, _FRONT, None), Piece(both, both, None)]


def zigzag_order(length: int, devices: int) -> jax.Array:
    """The position of each token in a zigzag layout, (S,): data loaders bring tokens in this
    order."""
    parts = jnp.arange(length, dtype=jnp.int32).reshape(2 * devices, -1)
    return jnp.stack([parts[:devices], parts[::-1][:devices]], 1).reshape(-1)
