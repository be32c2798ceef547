"""Data parallel by pmap, over the devices of one process."""

import functools

import jax
import jax.numpy as jnp

n = jax.local_device_count()
params = {"w": jnp.ones((n, 64, 64))}


@functools.partial(jax.pmap, axis_name="b", donate_argnums=0)
def step(p, x):
    value, g = jax.value_and_grad(lambda p: jnp.mean((x @ p["w"]) ** 2))(p)
    g = jax.lax.pmean(g, "b")
    return jax.tree.map(lambda a, b: a - 0.1 * b, p, g), value


for _ in range(5):
    params, value = step(params, jnp.ones((n, 8, 64)))
