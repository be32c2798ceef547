"""A language model's training step: value and gradient of its loss, then AdamW.

The idea: models differ in their parameters, their loss and the shape of their batch; the step
around them is the same.

    def arguments(mesh):
        return state_and_batch(parameters(config), (64, 8192), ("batch", "sequence"), mesh)

    training_step(functools.partial(loss, config), arguments, (64, 8), ("data", "model")).capture()
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import flint
from flint.models.jax import adamw
from flint.models.jax.parameters import Parameter, Tree, abstract
from flint.models.jax.sharding import Dim


def state_and_batch(
    params: Tree, shape: tuple[int, ...], dims: tuple[Dim, ...], mesh: Any
) -> tuple[Any, Any]:
    """State and batch of a training step, abstract, split over a mesh.

    Args:
        params: described parameters.
        shape: of the batch's tokens and of its targets, both int32.
        dims: logical names of their dims.
        mesh: an abstract one.
    """
    tokens = Parameter(shape, dims, scale=0.0, dtype=jnp.int32)
    state = {"params": params, "opt_state": adamw.state(params)}
    return abstract(state, mesh), abstract({"tokens": tokens, "targets": tokens}, mesh)


def accumulated(loss: Callable[[Any, Any], jax.Array]) -> Callable[[Any, Any], Any]:
    """The means of ``loss`` and of its gradient over microbatches, one after another.

    Args:
        loss: of parameters and a microbatch.

    Returns:
        ``(params, batch) -> (value, gradient)``; arrays of the batch have a leading dim.
    """

    def gradients(params: Any, batch: Any) -> Any:
        def add(total: Any, part: Any) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, jax.value_and_grad(loss)(params, part)), None

        zeros = jnp.float32(0), jax.tree.map(jnp.zeros_like, params)
        total, _ = jax.lax.scan(add, zeros, batch)
        count = jax.tree.leaves(batch)[0].shape[0]
        return jax.tree.map(lambda one: one / count, total)

    return gradients


def training_step(
    loss: Callable[[Any, Any], jax.Array],
    setup: Callable[[Any], tuple[Any, Any]],
    mesh: tuple[int, ...],
    axes: tuple[str, ...],
    gradients: Callable[..., Any] = jax.value_and_grad,
) -> Any:
    """A training step.

    Args:
        loss: of parameters and batch.
        setup: state and batch for a mesh.
        mesh: devices per axis.
        axes: their names, out of ``sharding.AXES``.
        gradients: of a function of parameters and batch, its value and gradient.

    Returns:
        ``step(state, batch) -> (state, loss)``, jitted, with the state donated.
    """

    @flint.capture(mesh=mesh, axes=axes, setup=setup)
    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state: Any, batch: Any) -> tuple[Any, jax.Array]:
        value, grads = gradients(loss)(state["params"], batch)
        params, optimizer = adamw.update(state["params"], grads, state["opt_state"])
        return {"params": params, "opt_state": optimizer}, value

    return train_step
