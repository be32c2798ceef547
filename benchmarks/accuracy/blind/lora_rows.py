"""Recipes that train adapters of a frozen Llama, as ``lora.py`` has it.

expressed(recipe)              # Expressed, or the reason why it is not
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

import lora
from cases_of_runs import Case, NoCase
from expressed import Expressed, Part, as_run, by_layers, weighted
from narrow import narrow
from recipes import Recipe
from scalings import SCALINGS
from torch_cases import ATTENTION, flash_first
from torch_models import config_of, each_of, mesh_of, replicas
from trainers import ASYNCHRONOUS, CHECKPOINTS, FEW, NARROW, SYSTEMS, first

#: What no row has as published.
_DIFFERS = (
    "Transformer Engine's fused kernels as what torch.compile fuses; casts as narrow.py says, none "
    "of weights"
)


def expressed(recipe: Recipe) -> Expressed | NoCase:
    """The step, without what is kept for the backward pass: that is in f8."""
    mesh, rank = mesh_of(recipe), recipe.sizes["lora"]["rank"]
    found = re.search(r"(\d+) accumulation", recipe.microbatches)
    batches = int(found[1]) if found else 1
    each = each_of(recipe, mesh, batches)
    config = replace(config_of(recipe), sequence=recipe.sequence, sequences=each)
    system, accelerator = first(SYSTEMS, recipe.accelerator)
    axes, sizes = tuple(mesh), tuple(mesh.values())
    split = " x ".join(f"{count} {axis}" for axis, count in mesh.items())
    many = f", {batches} batches" if batches > 1 else ""

    def case(checkpoint: bool, layers: int) -> Case:
        shallow = replace(config, layers=layers, checkpoint=checkpoint)

        def capture(count: int) -> Any:
            step = lora.training(replace(shallow, accumulation=count), rank, sizes, axes)
            with flash_first():
                return step.capture(options={"fuse": True, "audit": 0})

        return Case(
            run=as_run(recipe),
            measured=float("nan"),
            system=system,
            accelerator=accelerator,
            key=f"lora-{rank}-{shallow}-{mesh}",
            expressed=f"{split}, adapters of {rank}{many}",
            note=_DIFFERS,
            capture=capture,
            batches=batches,
            recorded=(1,) if batches == 1 else (1, 2),
            attention=ATTENTION[True],
            passes=("decompose",) if recipe.id.startswith(ASYNCHRONOUS) else (),
        )

    layers = recipe.sizes["layers"]
    some = re.search(r"first (\d+) of", recipe.remat)
    again = int(some[1]) / layers if some else float(bool(first(CHECKPOINTS, recipe.remat)))
    parts: tuple[Part, ...] = ()
    for share, checkpoint in ((again, True), (1 - again, False)):
        line = by_layers(partial(case, checkpoint), layers, FEW) if share else ()
        assert not isinstance(line, NoCase)
        parts += weighted(line, share, None)
    split_over = mesh.get("tp", 1)
    wide = {size // share for size in (rank, config.vocabulary) for share in (1, split_over)}
    tokens = each * config.sequence // mesh.get("cp", 1)
    scaling = first(NARROW, recipe.compute)
    kernels = narrow(
        SCALINGS.get(f"{scaling}_frozen", SCALINGS[scaling]), wide=wide, tokens=tokens, kept=True,
        attention=recipe.narrow_attention,
    )  # fmt: skip
    parts = weighted(parts, 1.0, kernels)
    differs = f"{parts[0].case.expressed}; {_DIFFERS}"
    if some:
        differs = f"{differs}; {some[1]} of {layers} layers are computed again"
    if "cp" in mesh:
        differs = f"{differs}; keys and values are gathered over cp"
    return Expressed(parts, replicas(mesh) * each * batches, differs, memory=False)
