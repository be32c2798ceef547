"""Steps with the same products and sizes that do different things between the products."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

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


def pool(reduce, first):
    """A reduction of windows of three numbers of each row."""
    return between(lambda x: lax.reduce_window(x, first, reduce, (1, 3), (1, 1), "SAME"))


greatest, least, total = pool(lax.max, -jnp.inf), pool(lax.min, jnp.inf), pool(lax.add, 0.0)
permuted = between(lambda x: x[:, jnp.array([(7 * n + 3) % 32 for n in range(32)])])
turned = between(lambda x: jnp.flip(x, 1))
masked = between(lambda x: jnp.where(jnp.arange(32) < x[:, :1], x, 0.0))
residual = between(lambda x: x + jnp.roll(x, 1, 1))

#: A product with ones and zeros, of which XLA makes a choice.
chosen = between(lambda x: x * (x == jnp.max(x, axis=1, keepdims=True)))

#: Lookups at one place, of which XLA makes slices.
middle = between(lambda x: x - jnp.median(x, axis=1, keepdims=True) + jnp.percentile(x, 30))
