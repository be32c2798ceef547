"""Sharding in types: a mesh with explicit axes, arrays made in place."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

mesh = jax.make_mesh(
    (jax.device_count() // 2, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2
)
jax.set_mesh(mesh)
w1 = jax.random.normal(jax.random.key(0), (512, 2048), out_sharding=P(None, "model"))
w2 = jax.random.normal(jax.random.key(1), (2048, 512), out_sharding=P("model", None))


@functools.partial(jax.jit, donate_argnums=0)
def step(ws, x):
    def loss(ws):
        y = jnp.dot(jax.nn.relu(jnp.dot(x, ws[0])), ws[1], out_sharding=P("data"))
        return jnp.mean((y - x) ** 2)

    value, g = jax.value_and_grad(loss)(ws)
    return jax.tree.map(lambda w, g: w - 0.1 * g, ws, g), value


ws = (w1, w2)
for i in range(5):
    x = jax.device_put(np.ones((64, 512), np.float32), P("data"))
    ws, value = step(ws, x)
    print(i, value, float(value))
