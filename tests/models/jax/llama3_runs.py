"""Prints, as JSON, losses of three steps of tiny Llamas on 8 devices, for each named variant."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp

from flint.models.jax import adamw
from flint.models.jax.llama3 import TINY, Config, abstract_arguments, parameters, training
from tests.models.jax.drawn import drawn

#: Exact enough to tell a wrong program from another order of additions.
BASE = replace(TINY, dtype=jnp.float32, sequences=1)

VARIANTS = {
    "one device": (BASE, (1,), ("data",)),
    "fsdp and tensor": (BASE, (4, 2), ("data", "model")),
    "unrolled": (replace(BASE, scan=False), (4, 2), ("data", "model")),
    "no remat": (replace(BASE, remat="none"), (4, 2), ("data", "model")),
    "dots": (replace(BASE, remat="dots"), (4, 2), ("data", "model")),
    "outputs": (replace(BASE, remat="outputs"), (4, 2), ("data", "model")),
    "attention": (replace(BASE, remat="attention"), (4, 2), ("data", "model")),
    "ungated, one device": (replace(BASE, gated=False), (1,), ("data",)),
    "ungated": (replace(BASE, gated=False), (4, 2), ("data", "model")),
    "sequence parallel": (replace(BASE, sequence_parallel=True), (4, 2), ("data", "model")),
    "hybrid": (BASE, (2, 2, 2), ("replica", "data", "model")),
    "context": (BASE, (2, 2, 2), ("data", "context", "model")),
    "tiles": (replace(BASE, tiles=4), (4, 2), ("data", "model")),
    "tiles, hybrid": (replace(BASE, tiles=4), (2, 2, 2), ("replica", "data", "context")),
    "shared keys": (BASE, (1, 8), ("data", "model")),
}


def state_of(config: Config):
    """The same weights for scanned and unrolled layers."""
    params = drawn(parameters(replace(config, scan=True)))
    if not config.scan:
        layers = [jax.tree.map(lambda w, n=n: w[n], params["blocks"]) for n in range(config.layers)]
        params = {**params, "blocks": layers}
    moments = drawn(adamw.state(parameters(config)))
    return {"params": params, "opt_state": moments}


def losses(config: Config, shape, axes):
    mesh = jax.make_mesh(shape, axes, axis_types=(jax.sharding.AxisType.Auto,) * len(axes))
    total = 4  # sequences, on every mesh
    tokens = jax.random.randint(jax.random.key(2), (total, config.sequence + 1), 0, 256)
    batch = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    step = training(config, shape, axes)
    found = []
    with jax.set_mesh(mesh):
        placed = jax.tree.map(lambda s: s.sharding, abstract_arguments(config, mesh))
        state, batch = jax.device_put((state_of(config), batch), placed)
        for _ in range(3):
            # One step at a time: the devices share a few threads, and two steps can block them all.
            state, loss = jax.block_until_ready(step(state, batch))
            found.append(float(loss))
        norm = float(jax.jit(adamw.global_norm)(state["params"]))
    return [*found, norm]


if __name__ == "__main__":
    names = {"one device", *sys.argv[1:]}
    if "ungated" in names:
        names.add("ungated, one device")
    print(json.dumps({name: losses(*VARIANTS[name]) for name in names}))
