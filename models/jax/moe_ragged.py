"""Dropless dispatch: as many rows as there are, sorted by expert, in ragged exchanges.

The idea: every token's row is sent once per expert, in the order of the experts and so of the
devices that have them.  All devices tell all how many they send; what arrives is sorted by source,
is put in the order of the experts, goes through grouped products, and comes back the way it came.
Shapes cannot depend on data: a device has room for ``room`` times the rows that it sends, by
default for all that could come.  How many of them are filled is data (``--routing``).

    device:   rows --sort--> by expert --ragged all-to-all--> by source --sort--> by expert
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from flint.models.jax.moe_experts import AXIS, apply_grouped, names_of, on_devices
from flint.models.jax.moe_routing import Routing
from flint.models.mixtures import Experts


class Exchange(NamedTuple):
    """Arguments of a ragged all-to-all, by device of the axis "expert".

    Attributes:
        begins: row of the operand from which each gets its part, (ranks,) of int32.
        sent: rows of that part.
        places: row of each one's buffer where the part begins.
        received: rows that come from each.
    """

    begins: jax.Array
    sent: jax.Array
    places: jax.Array
    received: jax.Array

    def back(self) -> Exchange:
        """The exchange that returns every row, if it arrived in the order of the sources."""
        here = _before(self.received)
        home = jax.lax.all_to_all(self.begins, AXIS, 0, 0, tiled=True)
        return Exchange(here, self.received, home, self.sent)

    def of(self, rows: jax.Array, room: int) -> jax.Array:
        """What arrives of ``rows`` (R, D): (room, D)."""
        buffer = jnp.broadcast_to(rows[:1] * 0, (room, rows.shape[1]))  # it varies as rows do
        return jax.lax.ragged_all_to_all(rows, buffer, *self, axis_name=AXIS)


def _before(counts: jax.Array) -> jax.Array:
    """Sums of what comes before, along the first dim."""
    return jnp.cumsum(counts, axis=0) - counts


def exchange_of(counts: jax.Array) -> Exchange:
    """How rows get to their experts' device, and what arrives from which device.

    Args:
        counts: (ranks, E) of int32: rows of every device for every expert.
    """
    ranks = counts.shape[0]
    here = jax.lax.axis_index(AXIS)
    to = counts.reshape(ranks, ranks, -1).sum(-1)  # from the first to the second
    sent = to[here]
    return Exchange(_before(sent), sent, _before(to)[here], to[:, here])


def by_ragged(x: jax.Array, layer: Any, routing: Routing, experts: Experts) -> jax.Array:
    """The experts' results for ``x`` (B, S, D); no token is dropped."""
    mesh = jax.sharding.get_abstract_mesh()
    ranks = mesh.shape.get(AXIS, 1)

    def device(x: jax.Array, routing: Routing, weights: Any) -> jax.Array:
        tokens = x.reshape(-1, x.shape[-1])
        choices = routing.expert.reshape(-1)
        with jax.named_scope("dispatch"):
            order = jnp.argsort(choices, stable=True)
            rows = tokens[order // experts.chosen]
            counts = _counts(choices, experts.count)
        made = _exchanged(rows, counts, weights, experts, ranks)
        with jax.named_scope("combine"):
            weight = routing.weight.reshape(-1)[order].astype(x.dtype)
            mixed = jnp.zeros_like(tokens).at[order // experts.chosen].add(made * weight[:, None])
            return mixed.reshape(x.shape)

    if mesh.empty:
        own = {name: layer[name].astype(x.dtype) for name in names_of(experts)}
        return device(x, routing, own)
    return on_devices(device, x, layer, routing, experts)


def _counts(choices: jax.Array, experts: int) -> jax.Array:
    return (choices[:, None] == jnp.arange(experts, dtype=choices.dtype)).sum(0, dtype=jnp.int32)


def _exchanged(
    rows: jax.Array, counts: jax.Array, weights: Any, experts: Experts, ranks: int
) -> jax.Array:
    """The experts' results (R, D) for ``rows`` (R, D) sorted by expert, ``counts`` (E,) of each."""
    if ranks == 1:
        return apply_grouped(rows, counts, weights, experts)
    room = min(ranks * rows.shape[0], _room(rows.shape[0], experts))
    with jax.named_scope("dispatch"):
        everyone = jax.lax.all_gather(counts, AXIS)  # (ranks, E)
        exchange = exchange_of(everyone)
        arrived = checkpoint_name(exchange.of(rows, room), "sent")
        here = jax.lax.axis_index(AXIS)
        local = everyone.reshape(ranks, ranks, -1)[:, here]  # (ranks, experts of a device)
        owner = jnp.tile(jnp.arange(local.shape[1], dtype=jnp.int32), ranks)
        runs = jnp.append(local.reshape(-1), room - local.sum())
        last = jnp.full(1, local.shape[1], jnp.int32)
        expert = jnp.repeat(jnp.concatenate([owner, last]), runs, total_repeat_length=room)
        order = jnp.argsort(expert, stable=True)
        grouped = arrived[order]
    made = apply_grouped(grouped, local.sum(0), weights, experts)
    with jax.named_scope("combine"):
        made = made[jnp.argsort(order)]
        return checkpoint_name(exchange.back().of(made, rows.shape[0]), "returned")


def _room(rows: int, experts: Experts) -> int:
    return max(1, round(rows * experts.room)) if experts.room else rows * experts.count
