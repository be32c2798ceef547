"""A step that is compiled ahead of its calls, and gradients that several calls accumulate."""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--accumulate", type=int, default=3)
args = parser.parse_args()

mesh = jax.make_mesh(
    (jax.device_count() // 2, 2), ("data", "model"),
    axis_types=(jax.sharding.AxisType.Auto,) * 2,
)  # fmt: skip
columns, rows = NamedSharding(mesh, P(None, "model")), NamedSharding(mesh, P("data"))


def init():
    return {
        "w": jnp.full((64, 128), 0.01, jnp.float32),
        "v": jnp.full((128, 64), 0.02, jnp.float32),
    }


def gradients(params, total, x):
    def loss_of(params):
        return jnp.mean((jnp.sin(x @ params["w"]) @ params["v"] - x) ** 2)

    return jax.tree.map(jnp.add, total, jax.grad(loss_of)(params))


@functools.partial(jax.jit, donate_argnums=(0, 1))
def apply(params, momentum, total):
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, total)
    return jax.tree.map(lambda p, m: p - 0.01 * m, params, momentum), momentum


placed = {"w": columns, "v": NamedSharding(mesh, P("model"))}
params = jax.jit(init, out_shardings=placed)()
momentum = jax.tree.map(jnp.zeros_like, params)
abstract = jax.tree.map(
    lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), params
)
batch = jax.ShapeDtypeStruct((32, 64), jnp.float32, sharding=rows)
compiled = (
    jax.jit(gradients, donate_argnums=1, out_shardings=placed)
    .lower(abstract, abstract, batch)
    .compile()
)
print(compiled.memory_analysis())
rng = np.random.default_rng(0)
for _ in range(args.steps):
    total = jax.tree.map(jnp.zeros_like, params)
    for _ in range(args.accumulate):
        x = rng.standard_normal((32, 64), dtype=np.float32)
        total = compiled(params, total, jax.device_put(x, rows))
    params, momentum = apply(params, momentum, total)
jax.block_until_ready(params)
