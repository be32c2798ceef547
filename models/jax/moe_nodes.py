"""Dispatch over nodes: a token crosses the network once per node, whatever experts it has there.

The idea: experts are split over the mesh axes "node" and "expert", the devices of a node.  A token
goes to the device of its own number on every node that has experts of it, over the network, and
from there to these experts, within the node.  Results come back the same way: weighted and summed
on the node first, so that they too cross the network once ("DeepSeek-V3 Technical Report", 2024,
section 3.2.2).  The list of a token's experts travels with it.

    x (B, S, D) -- node --> (N B, M, D) -- expert --> (.., E / N, C, D)      M tokens of a sequence

As many tokens of a sequence go to a node as go there when nodes get equally many; a router that
chooses among the experts of a few nodes (groups of experts) makes these fewer.  Tokens beyond this
number are dropped, as beyond an expert's capacity.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from flint.models.jax.moe_experts import AXIS, apply_experts, on_devices
from flint.models.jax.moe_places import from_places, in_places
from flint.models.jax.moe_routing import Routing
from flint.models.mixtures import Experts

#: The mesh axis of nodes.
NODE = "node"


def tokens_per_node(experts: Experts, nodes: int, length: int) -> int:
    """The places of a sequence with that many tokens on each node."""
    reached = min(experts.chosen, nodes, math.ceil(nodes * experts.kept_groups / experts.groups))
    return min(length, math.ceil(length * reached / nodes))


def by_nodes(x: jax.Array, layer: Any, routing: Routing, experts: Experts) -> jax.Array:
    """The experts' results for ``x`` (B, S, D), with all-to-alls between nodes and within them.

    Raises:
        ValueError: if the mesh in context lacks one of the axes.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not {NODE, AXIS} <= {*mesh.axis_names}:
        raise ValueError(f'the dispatch "nodes" needs a mesh with the axes "{NODE}" and "{AXIS}"')
    nodes = mesh.shape[NODE]
    capacity = experts.capacity(x.shape[1])
    there = experts.count // nodes * capacity  # places of a sequence on a node
    tokens = tokens_per_node(experts, nodes, x.shape[1])

    def device(x: jax.Array, routing: Routing, weights: Any) -> jax.Array:
        batch, length, width = x.shape
        with jax.named_scope("dispatch"):
            index = routing.expert * capacity + routing.place
            index = index[:, :, None] - jnp.arange(nodes)[:, None] * there  # (B, S, N, k)
            inside = (index >= 0) & (index < there) & (routing.place < capacity)[:, :, None]
            goes = inside.any(-1)
            place = jnp.cumsum(goes, 1) - 1
            fits = goes & (place < tokens)
            slot = jnp.where(fits, jnp.arange(nodes) * tokens + place, nodes * tokens)
            index = jnp.where(inside, index, there).reshape(batch, length * nodes, -1)
            weight = jnp.where(inside, routing.weight[:, :, None], 0)
            weight = weight.astype(x.dtype).reshape(batch, length * nodes, -1)
            row = slot.reshape(batch, -1)
            empty = jnp.full((batch, nodes * tokens, index.shape[-1]), there, index.dtype)
            put = jax.vmap(lambda to, at, what: to.at[at].set(what, mode="drop"))
            sent = _over(in_places(x, slot, nodes * tokens), nodes, NODE)
            index = _over(put(empty, row, index), nodes, NODE)
            weight = _over(put(jnp.zeros_like(empty, x.dtype), row, weight), nodes, NODE)
            sent = in_places(sent, index, there).reshape(
                -1, experts.count // nodes, capacity, width
            )
            sent = jax.lax.all_to_all(sent, AXIS, split_axis=1, concat_axis=0, tiled=True)
            sent = checkpoint_name(sent, "sent")
        made = apply_experts(sent, weights, experts)
        with jax.named_scope("combine"):
            made = jax.lax.all_to_all(made, AXIS, split_axis=0, concat_axis=1, tiled=True)
            made = from_places(made.reshape(-1, there, width), index)
            made = (made * weight[..., None]).sum(2).reshape(batch * nodes, 1, tokens, width)
            made = jax.lax.all_to_all(made, NODE, split_axis=0, concat_axis=1, tiled=True)
            made = checkpoint_name(made, "returned").reshape(batch, nodes * tokens, width)
            return from_places(made, slot).sum(2)

    return on_devices(device, x, layer, routing, experts)


def _over(rows: jax.Array, nodes: int, axis: str) -> jax.Array:
    """``rows`` (B, N M, ...), of which every node gets its M: (N B, M, ...) of all nodes."""
    rows = rows.reshape(rows.shape[0], nodes, -1, rows.shape[-1])
    rows = jax.lax.all_to_all(rows, axis, split_axis=1, concat_axis=0, tiled=True)
    return rows.reshape(-1, *rows.shape[2:])
