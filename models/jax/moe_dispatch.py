"""Routing of tokens to experts, and two ways of bringing them there.

The idea: a router scores every token for every expert, the best few of them each get the token, and
an expert takes a fixed number of tokens of a sequence, its capacity, so that all shapes are known
before anything runs.  What comes after the capacity is used up is dropped: that expert adds nothing
to that token.  First choices of all tokens come before second choices, earlier tokens before later
ones (GShard: Lepikhin et al., 2020, algorithm 1).  Both dispatches fill the same places:

    "einsum"       one-hot products put tokens into places and take them out again; experts are to
                   be split where sequences were, and XLA's partitioner sees to it
    "all_to_all"   the same by scatter and gather in ``shard_map``, with explicit all-to-alls over
                   the axis "expert", there and back

Letters are those of ``layers.py``; E experts, C capacity, k experts of a token.  With a tensor axis
every device of it sends the tokens of all of them, and computes its part of F.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec

from flint.models.jax.parameters import Parameter, Tree
from flint.models.jax.sharding import AXES, constrain, spec

#: The mesh axis over which the experts are split.
AXIS = "expert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Sizes of a mixture of experts.

    Attributes:
        count: number of experts; a multiple of the devices along the axis "expert".
        chosen: experts of a token.
        hidden: width of an expert's feed-forward network.
        capacity_factor: places that a sequence has with the experts, over those it would need if
            all experts got equally many of its tokens; ``count / chosen`` or more drops nothing.
    """

    count: int
    chosen: int
    hidden: int
    capacity_factor: float = 1.25

    def capacity(self, length: int) -> int:
        """Places of one expert for the tokens of a sequence; never more than it has tokens."""
        even = length * self.chosen / self.count
        return min(length, math.ceil(self.capacity_factor * even))


class Routing(NamedTuple):
    """Where the tokens go.

    Attributes:
        expert: (B, S, k) of int32: the token's experts, best first.
        place: (B, S, k) of int32: which of that expert's places; C and above: dropped.
        weight: (B, S, k) of float32: of the expert's result; those of a token add up to 1.
        balance: (B,) of float32: how uneven the sequence's routing is (see ``route``).
    """

    expert: jax.Array
    place: jax.Array
    weight: jax.Array
    balance: jax.Array


def expert_parameters(width: int, experts: Experts) -> Tree:
    """router (D, E); gate and up (E, D, F), down (E, F, D)."""
    inward = Parameter((experts.count, width, experts.hidden), ("experts", "fsdp", "tensor"))
    return {
        "router": Parameter((width, experts.count), (None, None)),
        "gate": inward,
        "up": inward,
        "down": Parameter((experts.count, experts.hidden, width), ("experts", "tensor", "fsdp")),
    }


def _best(scores: jax.Array, chosen: int) -> jax.Array:
    """Indices (B, S, k), int32, of the largest scores (B, S, E), best first.

    One maximum after another: XLA's partitioner would gather all devices' scores for ``top_k``.
    """
    found = []
    for _ in range(chosen):
        found.append(scores.argmax(-1))
        taken = jax.nn.one_hot(found[-1], scores.shape[-1], dtype=bool)
        scores = jnp.where(taken, -jnp.inf, scores)
    return jnp.stack(found, axis=-1)


def route(x: jax.Array, router: jax.Array, experts: Experts) -> Routing:
    """The experts of every token, in float32; weights are a softmax over their scores.

    ``balance`` of a sequence is the sum over experts of (part of the choices) * (mean probability),
    times E: 1 where all experts get equally much, more where few get most (GShard's auxiliary loss,
    scaled as in Fedus et al., 2021, equation 4).

    Args:
        x: (B, S, D).
        router: (D, E), float32.
        experts: their sizes.
    """
    with jax.named_scope("router"):
        scores = constrain(x.astype(jnp.float32) @ router, "batch", "sequence", None)
        expert = _best(jax.lax.stop_gradient(scores), experts.chosen)
        mask = jax.nn.one_hot(expert, experts.count, dtype=jnp.int32)  # (B, S, k, E)
        weight = jax.nn.softmax((mask * scores[:, :, None]).sum(-1), axis=-1)
        batch, length, chosen, count = mask.shape
        in_order = jnp.swapaxes(mask, 1, 2).reshape(batch, chosen * length, count)
        before = (jnp.cumsum(in_order, axis=1) - 1) * in_order
        place = jnp.swapaxes(before.sum(-1).reshape(batch, chosen, length), 1, 2)
        part = mask.sum((1, 2)) / (length * chosen)
        balance = count * (part * jax.nn.softmax(scores, axis=-1).mean(1)).sum(-1)
        return Routing(expert, place, weight, balance)


def apply_experts(x: jax.Array, gate: jax.Array, up: jax.Array, down: jax.Array) -> jax.Array:
    """Each expert's gated feed-forward network of its places ``x`` (B, E, C, D)."""
    with jax.named_scope("experts"):
        hidden = jax.nn.silu(jnp.einsum("becd,edf->becf", x, gate))
        hidden = hidden * jnp.einsum("becd,edf->becf", x, up)
        return jnp.einsum("becf,efd->becd", hidden, down)


def _sequence_axes(mesh: Any) -> tuple[str, ...]:
    """The mesh axes that split sequences only, experts not."""
    return tuple(axis for axis in AXES["batch"] if axis in mesh.axis_names and axis != AXIS)


def _by_expert(x: jax.Array) -> jax.Array:
    """``x`` (B, E, C, D) with the experts split over their axis, where the sequences were."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return x
    split = PartitionSpec(_sequence_axes(mesh) or None, *spec(("experts", None, None), mesh))
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
    gate, up, down = (layer[name].astype(x.dtype) for name in ("gate", "up", "down"))
    made = apply_experts(sent, gate, up, down)
    with jax.named_scope("combine"):
        made = constrain(_by_expert(made), "batch", None, None, None)
        made = checkpoint_name(made, "returned")
        weighted = to_expert * routing.weight[..., None].astype(x.dtype)
        back = jnp.einsum("bske,bskc->bsec", weighted, to_place)
        mixed = jnp.einsum("bsec,becd->bsd", constrain(back, "batch", "sequence", None, None), made)
        return constrain(mixed, "batch", "sequence", None)


def _in_places(x: jax.Array, index: jax.Array, places: int) -> jax.Array:
    """Tokens ``x`` (B, S, D) in their places (B, places, D); elsewhere zeros.

    Args:
        x: tokens.
        index: (B, S, k) of int32; beyond the last place: dropped.
        places: number of places of a sequence.
    """
    batch, _, width = x.shape
    tokens = jnp.repeat(x, index.shape[2], axis=1)  # as often as they have experts
    empty = jnp.zeros((places, width), x.dtype)
    fill = jax.vmap(lambda index, tokens: empty.at[index].add(tokens, mode="drop"))
    return fill(index.reshape(batch, -1), tokens)


def _from_places(made: jax.Array, index: jax.Array) -> jax.Array:
    """What is in the places (B, S, k) of ``made`` (B, places, D): (B, S, k, D); dropped: zeros."""
    take = jax.vmap(lambda made, index: made.at[index].get(mode="fill", fill_value=0))
    return take(made, index)


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
    tensor = tuple(axis for axis in AXES["tensor"] if axis in mesh.axis_names)
    fsdp = tuple(axis for axis in AXES["fsdp"] if axis in mesh.axis_names)
    replicas = tuple(axis for axis in _sequence_axes(mesh) if axis not in fsdp)

    def whole(weights: jax.Array, dim: int) -> jax.Array:
        """Weights gathered over the axes that split parameters."""
        with jax.named_scope("weights"):
            # Said before the gather, the gradient is summed over replicas after its scatter.
            weights = jax.lax.pcast(weights, replicas, to="varying") if replicas else weights
            return jax.lax.all_gather(weights, fsdp, axis=dim, tiled=True) if fsdp else weights

    def device(
        x: jax.Array, expert: jax.Array, place: jax.Array, weight: jax.Array, *weights: jax.Array
    ) -> jax.Array:
        """One device's part: its sequences, its experts, its part of F."""
        batch, _, width = x.shape
        # Each device of the tensor axis has a part of every result; stated here, the gradient is
        # summed over them once per token and not once per place.
        x = jax.lax.pcast(x, tensor, to="varying") if tensor else x
        index = jnp.where(place < capacity, expert * capacity + place, places)
        with jax.named_scope("dispatch"):
            sent = _in_places(x, index, places).reshape(batch, experts.count, capacity, width)
            sent = jax.lax.all_to_all(sent, AXIS, split_axis=1, concat_axis=0, tiled=True)
            sent = checkpoint_name(sent, "sent")
        gate, up, down = (whole(w, dim) for w, dim in zip(weights, (1, 1, 2), strict=True))
        made = apply_experts(sent, gate, up, down)
        with jax.named_scope("combine"):
            made = jax.lax.all_to_all(made, AXIS, split_axis=0, concat_axis=1, tiled=True)
            made = checkpoint_name(made, "returned").reshape(batch, places, width)
            mixed = (_from_places(made, index) * weight[..., None].astype(x.dtype)).sum(2)
            return jax.lax.psum(mixed, tensor) if tensor else mixed

    dims = expert_parameters(x.shape[2], experts)
    names = ("gate", "up", "down")
    tokens = spec(("batch", None, None), mesh)
    split = tokens, tokens, tokens, tokens, *(spec(dims[name].dims, mesh) for name in names)
    weights = (layer[name].astype(x.dtype) for name in names)
    mixed: jax.Array = jax.shard_map(device, in_specs=split, out_specs=tokens)(
        x, routing.expert, routing.place, routing.weight, *weights
    )
    return mixed


#: Name -> how tokens get to their experts and back.
DISPATCHES: dict[str, Callable[[jax.Array, Any, Routing, Experts], jax.Array]] = {
    "einsum": by_einsum,
    "all_to_all": by_all_to_all,
}
