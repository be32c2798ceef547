"""Dropless dispatch on devices that hold all experts, as MaxText writes it.

The idea: every token is repeated for each of its experts, the rows are put in the order of the
experts by one permutation and back by its inverse, and a weighted sum over a token's rows gives the
result.  Both permutations are gathers in both passes: the gradient of one is the other, which the
function says itself (``use_custom_sort_vjp``), so that no row is scattered.  MaxText's ``permute``
and ``unpermute`` (src/maxtext/layers/moe.py) with ``sparse_matmul`` and without expert parallelism.

    tokens --repeat--> rows --gather--> by expert --products--> --gather--> rows --sum--> tokens

What the experts made is named "expert_out", MaxText's ``mlpwo``: a row per token and expert.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from flint.models.jax.moe_experts import AXIS, apply_grouped, names_of, on_devices
from flint.models.jax.moe_routing import Routing
from flint.models.mixtures import Experts


@jax.custom_vjp
def permuted(rows: jax.Array, order: jax.Array) -> jax.Array:
    """``rows`` (R, D) in the order of ``order`` (R,), a permutation."""
    return rows[order]


def _forward(rows: jax.Array, order: jax.Array) -> tuple[jax.Array, jax.Array]:
    return permuted(rows, order), order


def _backward(order: jax.Array, gradient: jax.Array) -> tuple[jax.Array, None]:
    return permuted(gradient, jnp.argsort(order)), None


permuted.defvjp(_forward, _backward)


def by_permutation(x: jax.Array, layer: Any, routing: Routing, experts: Experts) -> jax.Array:
    """The experts' results for ``x`` (B, S, D); no token is dropped.

    Raises:
        ValueError: experts are split over devices.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.shape.get(AXIS, 1) > 1:
        raise ValueError('the dispatch "permuted" has all experts on every device: use "ragged"')

    def device(x: jax.Array, routing: Routing, weights: Any) -> jax.Array:
        tokens = x.reshape(-1, x.shape[-1])
        choices = routing.expert.reshape(-1)
        with jax.named_scope("dispatch"):
            order = jnp.argsort(choices)
            rows = permuted(jnp.repeat(tokens, experts.chosen, axis=0), order)
            counts = jnp.bincount(choices, length=experts.count).astype(jnp.int32)
        made = checkpoint_name(apply_grouped(rows, counts, weights, experts), "expert_out")
        with jax.named_scope("combine"):
            made = permuted(made, jnp.argsort(order)).reshape(-1, experts.chosen, x.shape[-1])
            weight = routing.weight.reshape(-1, experts.chosen).astype(x.dtype)
            return jnp.einsum("tkd,tk->td", made, weight).reshape(x.shape)

    if mesh.empty:
        own = {name: layer[name].astype(x.dtype) for name in names_of(experts)}
        return device(x, routing, own)
    return on_devices(device, x, layer, routing, experts)
