"""Steps with the same products and sizes, of which one sorts and one transforms its numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tests.validation.xla_steps import step


def between(reorder):
    """An op between two products."""

    def loss(w, x):
        with jax.named_scope("mlp"):
            hidden = reorder(x @ w)
        with jax.named_scope("head"):
            return w, jnp.mean(jnp.tanh(hidden @ w))

    return step(loss, ((32, 32), ()), ((64, 32), ("d",)))


plain = between(lambda x: x)
ordered = between(lambda x: jnp.sort(x, axis=1))
places = between(lambda x: jnp.take_along_axis(x, jnp.argsort(-x, axis=1), axis=1))
largest = between(lambda x: jnp.tile(jax.lax.top_k(x, 8)[0], (1, 4)))
waves = between(lambda x: jnp.real(jnp.fft.ifft(x)))
