"""Prints, as JSON, how far tiny ResNets on 8 host devices are from the same one on one device.

Two steps in float32; per variant, the largest difference over the largest element, of every array
of the state, and of the losses.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from flint.models.jax.parameters import initial, zeros_like
from flint.models.jax.resnet import TINY, abstract_arguments, parameters, statistics, training
from tests.models.jax.drawn import distance

#: Images of the whole batch.
TOTAL = 16

OWN = replace(TINY, together=2, dtype=jnp.float32)  # images: a device's share where there are 8
ALL = replace(TINY, together=None, dtype=jnp.float32)

VARIANTS = {
    "own": (OWN, (8,), ("data",)),
    "own, two axes": (OWN, (2, 4), ("replica", "data")),
    "synchronised": (ALL, (8,), ("data",)),
    "synchronised, two axes": (ALL, (2, 4), ("replica", "data")),
}


def two_steps(config, shape, axes):
    """State and losses of a batch of ``TOTAL`` images on any mesh."""
    config = replace(config, images=TOTAL // int(jnp.prod(jnp.array(shape))))
    mesh = jax.make_mesh(shape, axes, axis_types=(AxisType.Auto,) * len(axes))
    keys = jax.random.split(jax.random.key(0), 4)
    described = parameters(config)
    # Norms that begin as zero would hide a block's gradients.
    params = jax.tree.map(
        lambda p: p + 0.1 * jax.random.normal(keys[3], p.shape), initial(described, keys[0])
    )
    state = {
        "params": params,
        "statistics": initial(statistics(config), keys[0]),
        "opt_state": initial(zeros_like(described), keys[0]),
    }
    batch = {
        "images": jax.random.normal(keys[1], (TOTAL, config.size, config.size, 3)) + 0.5,
        "labels": jax.random.randint(keys[2], (TOTAL,), 0, config.classes),
    }
    step = training(config, shape, axes)
    losses = []
    with jax.set_mesh(mesh):
        placed = jax.tree.map(lambda s: s.sharding, abstract_arguments(config, mesh))
        state, batch = jax.device_put((state, batch), placed)
        for _ in range(2):
            state, loss = jax.block_until_ready(step(state, batch))
            losses.append(float(loss))
    return {**jax.device_get(state), "losses": jnp.array(losses)}


def main(names):
    whole = {config.together: two_steps(config, (1,), ("data",)) for config in (OWN, ALL)}
    found = {
        name: distance(two_steps(config, *mesh), whole[config.together])
        for name, (config, *mesh) in ((name, VARIANTS[name]) for name in names)
    }
    found["own or synchronised"] = distance(whole[2], whole[None])
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
