"""Ways of bringing tokens to their experts and results back.

The idea: where a token goes stands in its ``Routing`` (``moe_routing.py``).  Three dispatches fill
the same places, as many per expert as its capacity, and drop what has no place; the last two drop
nothing:

    "einsum"       one-hot products put tokens into places and take them out again; experts are
                   split where sequences were, and XLA's partitioner adds the exchange
    "all_to_all"   the same by scatter and gather in ``shard_map``, with explicit all-to-alls over
                   the axis "expert", there and back
    "nodes"        over the axes "node" and "expert": a token crosses the network once per node
                   (``moe_nodes.py``)
    "ragged"       tokens sorted by expert, ragged all-to-alls of as many as there are, grouped
                   products (``ragged_dot``): sizes are data, buffers hold the worst case
    "permuted"     tokens repeated and permuted where every device has all experts, as MaxText
                   writes it (``moe_permuted.py``)

Letters are those of ``layers.py``; E experts, C capacity, k experts of a token.  With a tensor axis
every device of it sends the tokens of all of them, and computes its part of F.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from flint.models.jax.moe_experts import AXIS, apply_experts, names_of, on_devices, sequence_axes
from flint.models.jax.moe_nodes import by_nodes
from flint.models.jax.moe_permuted import by_permutation
from flint.models.jax.moe_places import from_places, in_places
from flint.models.jax.moe_ragged import by_ragged
from flint.models.jax.moe_routing import Routing
from flint.models.jax.sharding import constrain, spec
from flint.models.mixtures import Experts


def _by_expert(x: jax.Array) -> jax.Array:
    """``x`` (B, E, C, D) with the experts split over their axis, where the sequences were."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return x
    split = PartitionSpec(sequence_axes(mesh) or None, *spec(("experts", None, None), mesh))
    return jax.lax.with_sharding_constraint(x, split)


def by_einsum(x: jax.Array, layer: Any, routing: Routing, experts: Experts) -> jax.Array:
    """The experts' results for ``x`` (B, S, D), by products with one-hot (B, S, E, C)."""
    places = experts.capacity(x.shape[1])
    with jax.named_scope("dispatch"):
        # An index beyond the last one is a row of zeros: a dropped token.
        to_place = jax.nn.one_hot(routing.place, places, dtype=x.dtype)
        to_expert = jax.nn.one_hot(routing.expert, experts.count, dtype=x.dtype)
        there = jnp.einsum("bske,bskc->bsec", to_expert, to_place)
        there = constrain(there, "batch", "sequence", None, None)
        sent = constrain(jnp.einsum("bsec,bsd->becd", there, x), "batch", None, None, None)
        sent = checkpoint_name(_by_expert(sent), "sent")
    weights = {name: layer[name].astype(x.dtype) for name in names_of(experts)}
    made = apply_experts(sent, weights, experts)
    with jax.named_scope("combine"):
        made = constrain(_by_expert(made), "batch", None, None, None)
        made = checkpoint_name(made, "returned")
        weighted = to_expert * routing.weight[..., None].astype(x.dtype)
        back = jnp.einsum("bske,bskc->bsec", weighted, to_place)
        mixed = jnp.einsum("bsec,becd->bsd", constrain(back, "batch", "sequence", None, None), made)
        return constrain(mixed, "batch", "sequence", None)


def by_all_to_all(x: jax.Array, layer: Any, routing: Routing, experts: Experts) -> jax.Array:
    """The experts' results for ``x`` (B, S, D), with explicit all-to-alls over the axis "expert".

    Raises:
        ValueError: if the mesh in context has no such axis.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if AXIS not in mesh.axis_names:
        raise ValueError(f'the dispatch "all_to_all" needs a mesh with the axis "{AXIS}"')
    capacity = experts.capacity(x.shape[1])
    places = experts.count * capacity

    def device(x: jax.Array, routing: Routing, weights: Any) -> jax.Array:
        batch, _, width = x.shape
        fits = routing.place < capacity
        index = jnp.where(fits, routing.expert * capacity + routing.place, places)
        with jax.named_scope("dispatch"):
            sent = in_places(x, index, places).reshape(batch, experts.count, capacity, width)
            sent = jax.lax.all_to_all(sent, AXIS, split_axis=1, concat_axis=0, tiled=True)
            sent = checkpoint_name(sent, "sent")
        made = apply_experts(sent, weights, experts)
        with jax.named_scope("combine"):
            made = jax.lax.all_to_all(made, AXIS, split_axis=0, concat_axis=1, tiled=True)
            made = checkpoint_name(made, "returned").reshape(batch, places, width)
            weight = routing.weight[..., None].astype(x.dtype)
            return (from_places(made, index) * weight).sum(2)

    return on_devices(device, x, layer, routing, experts)


#: Name -> how tokens get to their experts and back.
DISPATCHES: dict[str, Callable[[jax.Array, Any, Routing, Experts], jax.Array]] = {
    "einsum": by_einsum,
    "all_to_all": by_all_to_all,
    "nodes": by_nodes,
    "ragged": by_ragged,
    "permuted": by_permutation,
}
