"""An ensemble over half of the mesh; a thread makes its batches ahead, and a jit its optimizer."""

import functools
import queue
import threading

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh(
    (jax.device_count() // 2, 2), ("member", "data"), axis_types=(jax.sharding.AxisType.Auto,) * 2
)
members = jax.device_count()


def init(key):
    first, last = jax.random.split(key)
    return {
        "in": 0.2 * jax.random.normal(first, (16, 64)),
        "out": 0.2 * jax.random.normal(last, (64, 1)),
    }


@functools.partial(jax.jit, out_shardings=NamedSharding(mesh, P("member", "data")))
def noisy(x, key):
    return x + 0.1 * jax.random.normal(key, x.shape)


batches = queue.Queue(3)


def produce():
    random, key = np.random.default_rng(0), jax.random.key(1)
    while True:
        key, own = jax.random.split(key)
        batches.put(noisy(random.standard_normal((members, 1024, 16), dtype=np.float32), own))


tx = optax.inject_hyperparams(optax.adam)(learning_rate=1e-3)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(params, opt_state, x):
    def member(params, opt_state, x):
        def loss(params):
            return jnp.mean((jnp.tanh(x @ params["in"]) @ params["out"] - x[:, :1]) ** 2)

        value, gradients = jax.value_and_grad(loss)(params)
        updates, opt_state = tx.update(gradients, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return jax.vmap(member)(params, opt_state, x)


over_members = NamedSharding(mesh, P("member"))
keys = jax.random.split(jax.random.key(0), members)
params = jax.jit(jax.vmap(init), out_shardings=over_members)(keys)
opt_state = jax.jit(jax.vmap(tx.init))(params)
threading.Thread(target=produce, daemon=True).start()
for _ in range(6):
    params, opt_state, value = step(params, opt_state, batches.get())
print(np.mean(value))
