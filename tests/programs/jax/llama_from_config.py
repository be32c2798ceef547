"""A Llama of any size, as a configuration names it: sharded init, a data iterator, a loop."""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np

from flint.models.jax import adamw, llama3

SIZES = {"tiny": llama3.TINY, "8b": llama3.LLAMA3_8B, "405b": llama3.LLAMA3_405B}

parser = argparse.ArgumentParser()
parser.add_argument("--size", default="tiny", choices=SIZES)
parser.add_argument("--tensor", type=int, default=2)
parser.add_argument("--steps", type=int, default=5)
args = parser.parse_args()
config = SIZES[args.size]

mesh = jax.make_mesh(
    (jax.device_count() // args.tensor, args.tensor), ("data", "model"),
    axis_types=(jax.sharding.AxisType.Auto,) * 2,
)  # fmt: skip
jax.set_mesh(mesh)
abstract_state, abstract_batch = llama3.abstract_arguments(config, mesh)
shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract_state)


@functools.partial(jax.jit, out_shardings=shardings)
def init(seed):
    keys = iter(jax.random.split(jax.random.PRNGKey(seed), 64))

    def made(leaf):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.ndim > 1:
            return 0.02 * jax.random.normal(next(keys), leaf.shape, leaf.dtype)
        return jnp.zeros(leaf.shape, leaf.dtype)

    return jax.tree.map(made, abstract_state)


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state, batch):
    value, grads = jax.value_and_grad(lambda params: llama3.loss(config, params, batch))(
        state["params"]
    )
    params, optimizer = adamw.update(state["params"], grads, state["opt_state"])
    return {"params": params, "opt_state": optimizer}, value


def part(index, shape, rng):
    sizes = [len(range(*one.indices(size))) for one, size in zip(index, shape, strict=True)]
    return rng.integers(0, 256, sizes, np.int32)


def batches(steps):
    rng = np.random.default_rng(0)
    for _ in range(steps):
        yield jax.tree.map(
            lambda leaf: jax.make_array_from_callback(
                leaf.shape, leaf.sharding, lambda index: part(index, leaf.shape, rng)
            ),
            abstract_batch,
        )


state = init(0)
for number, batch in enumerate(batches(args.steps)):
    state, value = train_step(state, batch)
    if number % 2:
        print(number, f"{value:.3f}")
