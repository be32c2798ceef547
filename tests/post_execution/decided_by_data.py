"""A step whose loops and branches data decide, on 8 devices; the data say the same in every run."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

import flint
from tests.frontends.jax.steps import placed


def setup(mesh):
    return placed(mesh, (64, 32), "data"), placed(mesh, (32, 32))


def times(count, body, h):
    """``body`` as often as ``count``, a float, says."""
    return lax.while_loop(lambda c: c[0] < count, lambda c: (c[0] + 1, body(c[1])), (0.0, h))[1]


@flint.capture(mesh=(8,), axes=("data",), setup=setup)
def decided(x, w):
    """28 products of 8 x 32 x 32 per device: 5 (1 + 2), 4 x 3, and 1."""
    nothing = jnp.sum(x * 0)  # XLA may not assume it: x could be infinite

    def one(h):
        h = jnp.tanh(h @ w)
        return lax.cond(h.sum() * 0 == 0, lambda h: jnp.sin(h @ w) @ w, lambda h: h - 1, h)

    h = times(nothing + 5, one, x)
    h = times(nothing + 4, lambda h: times(nothing + 3, lambda h: jnp.cos(h @ w), h), h)
    return jnp.tanh(lax.cond(nothing == 0, lambda h: h @ w, lambda h: h, h))  # one has no kernel
