"""Prints, as JSON, how far pipelines are from the plain models on 8 host devices.

Of the tiny Llama and the tiny mixture of experts in float32: per pipeline, the largest difference
over the largest element of every array; of the loss and the gradients, and of some the loss and the
state after two training steps.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.sharding import AxisType

from flint.models.jax import adamw, llama3, moe, pipeline
from flint.models.jax.parameters import initial
from flint.models.jax.pipeline import PIPELINE_MIXTURE, PIPELINE_TINY
from tests.models.jax.drawn import distance

BASE = replace(PIPELINE_TINY, dtype=jnp.float32)
MIXTURE = replace(PIPELINE_MIXTURE, dtype=jnp.float32)
AXES = ("stage", "data", "model")
SEQUENCES = 8

#: Config, microbatches, mesh, axes.
PIPELINES = {
    "2x2x2": (BASE, 4, (2, 2, 2), AXES),
    "one per stage": (BASE, 2, (2, 2, 2), AXES),
    "sequence parallel": (replace(BASE, sequence_parallel=True), 4, (2, 2, 2), AXES),
    "4 stages": (BASE, 4, (4, 2), ("stage", "data")),
    "4 stages, 8 microbatches": (BASE, 8, (4,), ("stage",)),
    "8 stages": (replace(BASE, layers=8), 8, (8,), ("stage",)),
    "replicas": (BASE, 2, (2, 4), ("stage", "replica")),
    "unrolled, no remat": (replace(BASE, scan=False, remat="none"), 4, (2, 2), ("stage", "model")),
    "1 stage": (BASE, 2, (1, 4, 2), AXES),
    "mixture of experts": (MIXTURE, 2, (2, 2, 2), ("stage", "data", "expert")),
}

#: Those whose optimizer is run too.
STEPPED = ("2x2x2", "sequence parallel", "4 stages")


def mesh_of(shape, axes):
    return jax.make_mesh(shape, axes, axis_types=(AxisType.Auto,) * len(axes))


def with_stages(tree, stages):
    """A state of plain Llama, (layers, ...) as (stages, layers of a stage, ...)."""

    def split(path, leaf):
        blocks = any(getattr(key, "key", None) == "blocks" for key in path)
        return leaf.reshape(stages, -1, *leaf.shape[1:]) if blocks else leaf

    return jax.tree.map_with_path(split, tree)


def model_of(config):
    return moe if isinstance(config, moe.Config) else llama3


def plain_of(config):
    """The config of the same model without a pipeline."""
    if isinstance(config, moe.Config):
        return config
    return replace(config, scan=True, remat="full", sequence_parallel=False)


def state_of(config):
    """Of the plain model, with weights large enough that attention is far from uniform."""
    described = model_of(config).parameters(config)
    params = jax.tree.map(lambda w: w * 4, initial(described, jax.random.key(0)))
    return {"params": params, "opt_state": initial(adamw.state(described), jax.random.key(1))}


def batch_of(config):
    shape = (SEQUENCES, config.sequence + 1)
    tokens = jax.random.randint(jax.random.key(2), shape, 0, config.vocabulary)
    return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}


def gradients(model_loss, state, batch):
    """Loss and gradients."""
    value, grads = jax.jit(jax.value_and_grad(model_loss))(state["params"], batch)
    return jax.device_get({"loss": value, "grads": grads})


def stepped(step, state, batch):
    """Loss and state of the second of two steps."""
    for _ in range(2):
        # One step at a time: the devices share a few threads, and two steps can block them all.
        state, value = jax.block_until_ready(step(state, batch))
    return jax.device_get({"loss of step 2": value, "state": state})


def plain(config):
    """Of one device; layers in the arrays' leading dim."""
    model, one = model_of(config), ((1,), ("data",))
    arguments = state_of(config), batch_of(config)
    with jax.set_mesh(mesh_of(*one)):
        found = gradients(lambda *arguments: model.loss(config, *arguments), *arguments)
        return found | stepped(model.training(config, *one), *arguments)


def pipelined(config, microbatches, shape, axes, steps):
    mesh = mesh_of(shape, axes)
    with jax.set_mesh(mesh):
        placed = jax.tree.map(
            lambda leaf: leaf.sharding, pipeline.abstract_arguments(config, microbatches, mesh)
        )
        state = with_stages(state_of(plain_of(config)), mesh.shape["stage"])
        batch = jax.tree.map(
            lambda x: x.reshape(microbatches, -1, config.sequence), batch_of(config)
        )
        arguments = jax.device_put((state, batch), placed)
        found = gradients(lambda *arguments: pipeline.loss(config, *arguments), *arguments)
        if steps:
            found |= stepped(pipeline.training(config, microbatches, shape, axes), *arguments)
        return found


def main(names):
    chosen = {name: PIPELINES[name] for name in names}
    exact = {config: plain(config) for config in {plain_of(item[0]) for item in chosen.values()}}
    found = {}
    for name, (config, *rest) in chosen.items():
        stages = dict(zip(rest[2], rest[1], strict=True))["stage"]
        ours = pipelined(config, *rest, name in STEPPED)
        theirs = exact[plain_of(config)]
        whole = with_stages({key: theirs[key] for key in ours}, stages)
        found[name] = distance(ours, whole)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
