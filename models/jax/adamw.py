"""AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019, algorithm 2).

The idea: moments in float32 with the splits of their parameters; the update is elementwise, so that
its only communication is the clipping norm's.

    state = adamw.state(params)                         # described, like params
    params, state = adamw.update(params, grads, state)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from flint.models.jax.parameters import Parameter, Tree, zeros_like


@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW:
    """Hyperparameters; the defaults are those of the Llama reports.

    Attributes:
        rate: learning rate.
        beta1, beta2: decay of the first and the second moment.
        epsilon: added to the root of the second moment.
        decay: decoupled weight decay.
        clip: largest global norm of the gradients; None leaves them as they are.
    """

    rate: float = 8e-5
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    decay: float = 0.1
    clip: float | None = 1.0


def state(params: Tree) -> dict[str, Any]:
    """The optimizer's state for described parameters: both moments and the step's number."""
    return {
        "mu": zeros_like(params),
        "nu": zeros_like(params),
        "count": Parameter((), (), scale=0.0, dtype=jnp.int32),
    }


def global_norm(tree: Any) -> jax.Array:
    """Euclidean norm of all elements of a tree of arrays, float32."""
    squares = [jnp.sum(jnp.square(leaf.astype(jnp.float32))) for leaf in jax.tree.leaves(tree)]
    return jnp.sqrt(sum(squares))


def update(params: Any, grads: Any, state: Any, config: AdamW | None = None) -> tuple[Any, Any]:
    """One step.

    Args:
        params: tree of arrays.
        grads: their gradients, same shapes.
        state: of ``state``, as arrays.
        config: hyperparameters.

    Returns:
        New parameters and new state.
    """
    config = config or AdamW()
    with jax.named_scope("adamw"):
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        if config.clip is not None:
            factor = jnp.minimum(1.0, config.clip / (global_norm(grads) + 1e-6))
            grads = jax.tree.map(lambda g: g * factor, grads)
        count = state["count"] + 1
        b1, b2 = config.beta1, config.beta2
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["mu"], grads)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state["nu"], grads)
        time = count.astype(jnp.float32)
        scale1, scale2 = 1 / (1 - b1**time), 1 / (1 - b2**time)

        def moved(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
            step = m * scale1 / (jnp.sqrt(v * scale2) + config.epsilon)
            new = p.astype(jnp.float32) - config.rate * (step + config.decay * p)
            return new.astype(p.dtype)

        params = jax.tree.map(moved, params, mu, nu)
    return params, {"mu": mu, "nu": nu, "count": count}
