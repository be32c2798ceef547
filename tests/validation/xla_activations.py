"""Steps that differ in a function alone: the same products, sums and sizes."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from tests.validation.xla_steps import step


def activated(act):
    """An activation between two products, and a softmax, which has an exponential of its own."""

    def run(w, x):
        with jax.named_scope("mlp"):
            hidden = act(x @ w)
        with jax.named_scope("head"):
            return jnp.mean(jax.nn.softmax(hidden @ w) ** 2)

    def loss(w, x):
        value, gradient = jax.value_and_grad(run)(w, x)
        return w - 0.1 * gradient, value

    return step(loss, ((32, 32), ()), ((64, 32), ("d",)))


silu, gelu, relu, tanh, sine, softplus = (
    activated(act)
    for act in (jax.nn.silu, jax.nn.gelu, jax.nn.relu, jnp.tanh, jnp.sin, jax.nn.softplus)
)
exact_gelu = activated(lambda x: jax.nn.gelu(x, approximate=False))
NAMES = ("silu", "gelu", "relu", "tanh", "sine", "softplus", "exact_gelu")
