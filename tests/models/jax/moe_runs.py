"""Prints, as JSON, how far the mixture of experts is from its plain form, on 16 host devices.

Loss and gradients of the tiny model in float32: per case that is named, the largest difference over
the largest element, of every array.  Plain: one device, routing by Python's loops, every expert for
every token, weighted with zero where it was not chosen or has dropped it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding

from flint.models.jax.layers import swiglu
from flint.models.jax.moe import TINY, Config, loss, parameters
from flint.models.jax.moe_dispatch import DISPATCHES
from flint.models.jax.parameters import abstract
from flint.models.jax.sharding import spec
from tests.models.jax.drawn import distance, drawn

MESHES = {
    "2-D": ((2, 4), ("data", "expert")),
    "3-D": ((2, 2, 2), ("data", "expert", "model")),
    "4-D": ((2, 2, 2, 2), ("replica", "data", "expert", "model")),
    "experts only": ((8,), ("expert",)),
    "nodes": ((2, 2, 2), ("data", "node", "expert")),
    "one device": ((1,), ("data",)),
    "data only": ((8,), ("data",)),
}

#: 8 experts, 2 of a token: from 4 on, an expert has a place for every token.
FACTORS = {"nothing dropped": 4.0, "dropped": 0.75}

#: Dispatch, mesh, and how the config differs; each with both capacities.
FORMS = {
    **{f"all_to_all, {mesh}": ("all_to_all", mesh, {}) for mesh in list(MESHES)[:4]},
    **{f"einsum, {mesh}": ("einsum", mesh, {}) for mesh in MESHES},
    **{f"ragged, {mesh}": ("ragged", mesh, {}) for mesh in ("2-D", "3-D", "one device")},
    **{f"permuted, {mesh}": ("permuted", mesh, {}) for mesh in ("data only", "one device")},
    "nodes, nodes": ("nodes", "nodes", {}),
    "all_to_all, 2-D, no remat": ("all_to_all", "2-D", {"remat": "none"}),
    "all_to_all, 2-D, exchanged": ("all_to_all", "2-D", {"remat": "exchanged"}),
}


def routed(scores, chosen, places):
    """Which experts a token has, and which of them have a place for it: (B, S, E) of bool."""
    have, kept = np.zeros(scores.shape, bool), np.zeros(scores.shape, bool)
    batch, length, count = scores.shape
    for sequence in range(batch):
        free = [places] * count
        for rank in range(chosen):
            for token in range(length):
                of_token = scores[sequence, token]
                expert = sorted(range(count), key=lambda e, of=of_token: -of[e])[rank]
                have[sequence, token, expert] = True
                if free[expert]:
                    kept[sequence, token, expert] = True
                    free[expert] -= 1
    return have, kept


def plain(x, layer, routing, experts):
    del routing
    scores = x @ layer["router"]
    places = experts.capacity(x.shape[1])
    masks = jax.ShapeDtypeStruct(scores.shape, bool)
    have, kept = jax.pure_callback(
        lambda scores: routed(np.asarray(scores), experts.chosen, places),
        (masks, masks),
        jax.lax.stop_gradient(scores),
    )
    weights = jax.nn.softmax(jnp.where(have, scores, -jnp.inf), -1) * kept
    parts = []
    for expert in range(experts.count):
        own = {name: layer[name][expert] for name in ("gate", "up", "down")}
        parts.append(weights[..., expert, None] * swiglu(x, own))
    return sum(parts)


DISPATCHES["plain"] = plain


def ragged_all_to_all(rows, buffer, begins, sent, places, received, *, axis_name):
    """As JAX documents it, of which XLA has no form for CPUs: every device's rows, taken apart."""
    here, number = jax.lax.axis_index(axis_name), jnp.arange(buffer.shape[0])
    everyone = jax.lax.all_gather((rows, begins, sent, places), axis_name)
    for source in range(len(received)):
        rows, begins, sent, places = (item[source] for item in everyone)
        place = number - places[here]
        own = (place >= 0) & (place < sent[here])
        found = rows.at[begins[here] + place].get(mode="fill", fill_value=0)
        buffer = jnp.where(own[:, None], found, buffer)
    return buffer


jax.lax.ragged_all_to_all = ragged_all_to_all


def loss_and_gradients(config: Config, shape, axes):
    """Of a model on a mesh."""
    params = drawn(parameters(config), times=4)  # large enough that some experts are preferred
    tokens = jax.random.randint(jax.random.key(2), (8, config.sequence + 1), 0, config.vocabulary)
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    mesh = jax.make_mesh(shape, axes, axis_types=(AxisType.Auto,) * len(axes))
    with jax.set_mesh(mesh):
        placed = jax.tree.map(lambda s: s.sharding, abstract(parameters(config), mesh))
        params = jax.device_put(params, placed)
        batch = jax.device_put(batch, NamedSharding(mesh, spec(("batch", "sequence"), mesh)))
        step = jax.jit(jax.value_and_grad(lambda p, b: loss(config, p, b)))
        value, grads = jax.block_until_ready(step(params, batch))
    return {"loss": value, **grads}


def main(cases):
    found = {}
    wanted = {case.rpartition(", ")[2] for case in cases}
    for capacity in filter(wanted.__contains__, FACTORS):
        experts = replace(TINY.experts, capacity_factor=FACTORS[capacity])
        base = replace(TINY, dtype=jnp.float32, experts=experts)
        exact = loss_and_gradients(replace(base, dispatch="plain"), *MESHES["one device"])
        found[f"loss, {capacity}"] = float(exact["loss"])
        for form, (dispatch, mesh, other) in FORMS.items():
            if f"{form}, {capacity}" in cases:
                config = replace(base, dispatch=dispatch, **other)
                made = loss_and_gradients(config, *MESHES[mesh])
                found[f"{form}, {capacity}"] = distance(made, exact)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
