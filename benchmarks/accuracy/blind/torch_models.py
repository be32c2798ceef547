"""The model and the mesh of a PyTorch trainer's recipe.

config_of(recipe), mesh_of(recipe)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from recipes import Recipe
from trainers import (
    BF16,
    FUSED,
    FUSED_ADAMW,
    MASKED,
    NORM_KERNEL,
    NORMED,
    REDUCED,
    REPEATED_UNTIL,
    ROTATES,
    TIED,
    WRITTEN,
    how_lost,
)

from flint.models.mixtures import Heads
from flint.models.torch.llama3_model import Config


def config_of(recipe: Recipe) -> Config:
    """The model of a row."""
    sizes = recipe.sizes
    hidden = sizes["ffn"]
    split = recipe.parallelism.get("tp", 1) > 1
    plain = sizes.get("mlp", "").startswith("GELU, two")
    # Two matrices, of as many FLOPs as three; the model splits no learned positions.
    if sizes.get("mlp") == "relu^2" or (plain and split):
        hidden = round(hidden * 2 / 3 / 128) * 128
    vocabulary = sizes["vocabulary"]
    more: dict[str, Any] = {}
    if sizes.get("learned_positions"):  # MPT; FSDP reduces in the type of the gathered parameters
        more = {"style": "gpt", "reduce_dtype": torch.bfloat16}
    elif plain and not split:
        more = {"style": "gpt"}
    elif recipe.id.startswith(NORMED):
        more = {"style": "huggingface, normed"}
    elif recipe.id.startswith(WRITTEN):
        more = {"style": "huggingface" + (", masked" if recipe.id.startswith(MASKED) else "")}
    elif recipe.framework.startswith("torchtitan") and "Qwen3" in recipe.model:
        repeated = recipe.date < REPEATED_UNTIL
        more = {"style": "torchtitan, repeated" if repeated else "torchtitan, normed"}
    elif recipe.framework.startswith("torchtitan") and "Llama" in recipe.model:
        written = recipe.date < NORM_KERNEL
        more = {"style": "torchtitan, written" if written else "torchtitan"}
    if recipe.id.startswith(BF16):
        more |= {"kept_dtype": torch.bfloat16}
    if recipe.id.startswith(REDUCED):
        more |= {"reduce_dtype": torch.bfloat16}
    if recipe.id.startswith(ROTATES):
        more |= {"rotate": "alltoall"}
    stages = recipe.parallelism.get("virtual_pp", 1)
    if stages > 1:
        more |= {"schedule": "Interleaved1F1B", "stages": stages}
    if recipe.framework.startswith(FUSED) or recipe.id.startswith(FUSED_ADAMW):
        more |= {"fused": True}
    return Config(
        layers=sizes["layers"],
        width=sizes["hidden"],
        heads=Heads(queries=sizes["heads"], keys=sizes["kv_heads"], size=sizes["head_dim"]),
        hidden=hidden,
        vocabulary=vocabulary + (-vocabulary) % 4,
        **more,
    )


def mesh_of(recipe: Recipe) -> dict[str, int]:
    """Ranks by axis, those of one rank left out."""
    split = recipe.parallelism
    sharded = split.get("fsdp", 1)
    data = split.get("dp", sharded if isinstance(sharded, int) else 1)
    if isinstance(sharded, int):
        data = max(data, sharded)
    if data * split.get("cp", 1) > recipe.devices:  # the ranks of "cp" are among them
        data //= split["cp"]
    mesh = {
        "pp": split.get("pp", 1),
        "dp_replicate": split.get("dp_replicate", 1),
        "dp": data,
        "cp": split.get("cp", 1),
        "tp": split.get("tp", 1),
    }
    return {axis: count for axis, count in mesh.items() if count > 1} or {"dp": 1}


def of_rank(recipe: Recipe) -> tuple[Recipe, int]:
    """One rank of a pipeline of more than four as a model of its own, and microbatches in which it
    waits: all ranks but one, each for one of a rank's stages (Narayanan et al., 2021)."""
    ranks, stages = (recipe.parallelism.get(name, 1) for name in ("pp", "virtual_pp"))
    if ranks <= 4:
        return recipe, 0
    sizes = {**recipe.sizes, "layers": -(-recipe.sizes["layers"] // ranks)}
    rest = {k: v for k, v in recipe.parallelism.items() if k not in ("pp", "virtual_pp")}
    part = replace(recipe, sizes=sizes, parallelism=rest, devices=recipe.devices // ranks)
    return part, round((ranks - 1) / stages)


def replicas(mesh: Mapping[str, int]) -> int:
    """Ranks with sequences of their own."""
    return mesh.get("dp", 1) * mesh.get("dp_replicate", 1)


def each_of(recipe: Recipe, mesh: Mapping[str, int], accumulated: int) -> int:
    """Sequences of a batch per data-parallel rank."""
    stated = re.search(r"micro batch (\d+)", recipe.microbatches)
    return int(stated[1]) if stated else recipe.batch // (replicas(mesh) * accumulated)


def ends_of(recipe: Recipe, mesh: Mapping[str, int]) -> dict[str, Any]:
    """How a row's embedding, head and loss are made; where ranks split the head, the default."""
    found: dict[str, Any] = how_lost(recipe, mesh)
    tied = recipe.sizes.get("tied_embedding") or recipe.sizes.get("tied")
    tied = tied or recipe.id.startswith(TIED)
    if tied and not {"pp", "tp"} & {*mesh}:
        found |= {"tied": True, "ends": "together"}
    return found
