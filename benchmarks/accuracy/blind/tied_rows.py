"""Llama with one matrix for embedding and head, in float32, on the devices of TPU v7x: two a chip.

The idea: data parallelism keeps the weights once a device, so that what runs on them counts a
chip's halves by themselves (``v7x-devices.toml``).

    expressed(recipe)              # Expressed
"""

from __future__ import annotations

import functools
import re
from typing import Any

import jax.numpy as jnp
from cases_of_runs import Case
from expressed import Expressed, Part, as_run
from normed import normed
from recipes import HERE, Recipe

from flint.models.jax import llama3
from flint.models.jax.layers import Heads
from flint.models.jax.llama3 import Config
from flint.models.jax.sharding import parts
from flint.models.jax.training import accumulated, state_and_batch, training_step


def loss(config: Config, params: Any, batch: Any) -> Any:
    """As ``llama3.loss``, of parameters without a head."""
    return llama3.loss(config, {**params, "head": params["embedding"].T}, batch)


def arguments(config: Config, batches: int, mesh: Any) -> tuple[Any, Any]:
    """State and batch of a step; with several batches, of a leading dim."""
    params = {name: item for name, item in llama3.parameters(config).items() if name != "head"}
    shape: tuple[int, ...] = config.sequences * parts("batch", mesh), config.sequence
    dims: tuple[str | None, ...] = ("batch", "sequence")
    if batches > 1:
        shape, dims = (batches, *shape), (None, *dims)
    return state_and_batch(params, shape, dims, mesh)


def expressed(recipe: Recipe) -> Expressed:
    """A row of MaxText's Qwen3 0.6B under tunix."""
    sizes, split = recipe.sizes, recipe.parallelism
    found = re.match(r"(\d+) accumulations", recipe.microbatches)
    batches = int(found[1]) if found else 1
    config = Config(
        layers=sizes["layers"], width=sizes["hidden"], hidden=sizes["ffn"],
        heads=Heads(queries=sizes["heads"], keys=sizes["kv_heads"], size=sizes["head_dim"]),
        vocabulary=sizes["vocabulary"], sequence=recipe.sequence, scan=False, remat="none",
        dtype=jnp.float32, mixer=normed,
    )  # fmt: skip
    mesh = {"replica": split.get("dp", 1), "data": split.get("fsdp", 1)}

    def capture(count: int) -> Any:
        step = training_step(
            functools.partial(loss, config),
            functools.partial(arguments, config, count),
            tuple(mesh.values()),
            tuple(mesh),
            *((accumulated,) if count > 1 else ()),
        )
        return step.capture()

    many = f", {batches} batches" if batches > 1 else ""
    case = Case(
        run=as_run(recipe),
        measured=float("nan"),
        system=str(HERE / "v7x-devices.toml"),
        accelerator="tpu-v7x",
        key=f"tied-{config}-{mesh}",
        expressed=f"{mesh['replica']} replica x {mesh['data']} data{many}, remat none, "
        "splash attention",
        note="",
        capture=capture,
        batches=batches,
        recorded=(batches,),
        attention="fused",
    )
    return Expressed((Part(1.0, case),), recipe.batch, case.expressed)
