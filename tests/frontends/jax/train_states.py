"""One small network, trained with each of the libraries that people keep their state in.

Two dense layers 64 -> 128 -> 32 with biases, a batch of 64 rows over "data", weights over "model",
Adam: every library gives the same gradients to reduce.
"""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx
from flax.training.train_state import TrainState
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import flint

SIZES = (64, 128, 32)
#: Shapes of what is trained, and how they are split over "model".
WEIGHTS = {(64, 128): P(None, "model"), (128, 32): P("model", None), (128,): P("model")}
WEIGHTS_TRANSPOSED = {(128, 64): P("model", None), (32, 128): P(None, "model"), (128,): P("model")}


def placed(mesh: Any, tree: Any, specs: dict[tuple[int, ...], P] = WEIGHTS) -> Any:
    """Arrays (or their shapes) as abstract arrays on the mesh; whatever is no array stays."""

    def place(leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        spec = specs.get(tuple(leaf.shape), P())
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    return jax.tree.map(place, tree)


def batch(mesh: Any) -> Any:
    sharding = NamedSharding(mesh, P("data"))
    return jax.ShapeDtypeStruct((64, SIZES[0]), jnp.float32, sharding=sharding)


capture = functools.partial(flint.capture, mesh=(4, 2), axes=("data", "model"))


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(SIZES[2])(nn.relu(nn.Dense(SIZES[1])(x)))


def linen_setup(mesh):
    model = Linen()

    def make():
        params = model.init(jax.random.key(0), jnp.zeros((1, SIZES[0])))
        return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))

    return placed(mesh, jax.eval_shape(make)), batch(mesh)


@capture(setup=linen_setup)
@functools.partial(jax.jit, donate_argnums=0)
def linen(state, x):
    grads = jax.grad(lambda params: jnp.mean(state.apply_fn(params, x) ** 2))(state.params)
    return state.apply_gradients(grads=grads)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.up = nnx.Linear(SIZES[0], SIZES[1], rngs=rngs)
        self.down = nnx.Linear(SIZES[1], SIZES[2], rngs=rngs)

    def __call__(self, x):
        return self.down(nnx.relu(self.up(x)))


def nnx_setup(mesh):
    def make():
        model = Nnx(nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)

    return (*placed(mesh, nnx.eval_shape(make)), batch(mesh))


@capture(setup=nnx_setup)
@nnx.jit(donate_argnums=(0, 1))
def nnx_step(model, optimizer, x):
    grads = nnx.grad(lambda model: jnp.mean(model(x) ** 2))(model)
    optimizer.update(model, grads)


def equinox_setup(mesh):
    def make():
        model = eqx.nn.MLP(SIZES[0], SIZES[2], SIZES[1], 1, key=jax.random.key(0))
        return model, optax.adam(1e-3).init(eqx.filter(model, eqx.is_array))

    model, state = eqx.filter_eval_shape(make)
    return (
        placed(mesh, model, WEIGHTS_TRANSPOSED),
        placed(mesh, state, WEIGHTS_TRANSPOSED),
        batch(mesh),
    )


@capture(setup=equinox_setup)
@eqx.filter_jit
def equinox_step(model, state, x):
    grads = eqx.filter_grad(lambda model: jnp.mean(jax.vmap(model)(x) ** 2))(model)
    updates, state = optax.adam(1e-3).update(grads, state)
    return eqx.apply_updates(model, updates), state


def optax_setup(mesh):
    params = {
        "up": {"w": jnp.zeros(SIZES[:2]), "b": jnp.zeros(SIZES[1])},
        "down": {"w": jnp.zeros(SIZES[1:]), "b": jnp.zeros(SIZES[2])},
    }
    state = jax.eval_shape(optax.adam(1e-3).init, params)
    return placed(mesh, params), placed(mesh, state), batch(mesh)


@capture(setup=optax_setup, donate_argnums=(0, 1))
def optax_step(params, opt_state, x):
    def loss(params):
        hidden = jax.nn.relu(x @ params["up"]["w"] + params["up"]["b"])
        return jnp.mean((hidden @ params["down"]["w"] + params["down"]["b"]) ** 2)

    updates, opt_state = optax.adam(1e-3).update(jax.grad(loss)(params), opt_state)
    return optax.apply_updates(params, updates), opt_state
