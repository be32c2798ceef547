"""An equinox model on a mesh in context; a thread loads batches onto the devices."""

import queue
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh(
    (jax.device_count() // 4, 4), ("dp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2
)
jax.set_mesh(mesh)
model = eqx.nn.MLP(64, 64, 256, 3, key=jax.random.key(0))


def place(x):
    if x.ndim == 2:
        return jax.device_put(x, NamedSharding(mesh, P("tp", None)))
    return jax.device_put(x, NamedSharding(mesh, P()))


params, static = eqx.partition(model, eqx.is_array)
params = jax.tree.map(place, params)
model = eqx.combine(params, static)
opt = optax.adamw(optax.cosine_decay_schedule(1e-3, 100))
opt_state = opt.init(eqx.filter(model, eqx.is_array))


@eqx.filter_jit(donate="all")
def make_step(model, opt_state, x, key):
    def loss(m, x):
        return jnp.mean((jax.vmap(m)(x) - x) ** 2)

    value, g = eqx.filter_value_and_grad(loss)(model, x)
    upd, opt_state = opt.update(g, opt_state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, upd), opt_state, value


q = queue.Queue(2)


def loader():
    rng = np.random.default_rng(0)
    for _ in range(12):
        q.put(
            jax.device_put(
                rng.standard_normal((64, 64), dtype=np.float32), NamedSharding(mesh, P("dp"))
            )
        )
    q.put(None)


threading.Thread(target=loader, daemon=True).start()
key = jax.random.key(1)
step = 0
losses = []
while (x := q.get()) is not None:
    key, sub = jax.random.split(key)
    model, opt_state, value = make_step(model, opt_state, x, sub)
    losses.append(value)
    step += 1
    if step % 4 == 0:
        print(step, np.mean(jax.device_get(losses)))
        losses = []
