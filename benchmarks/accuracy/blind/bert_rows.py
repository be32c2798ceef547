"""Recipes that pre-train BERT, as ``bert.py`` has it.

expressed(recipe)              # Expressed, or the reason why it is not
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import bert
import torch
from cases_of_runs import Case, NoCase
from expressed import Expressed, as_run, by_layers, weighted
from narrow import narrow
from recipes import Recipe
from scalings import SCALINGS
from torch_cases import flash_first
from torch_models import each_of
from trainers import FEW, NARROW, SYSTEMS, first

#: Tokens of a sequence -> how many of them are predicted at most (Devlin et al.'s two phases).
MASKED: Mapping[int, int] = {128: 20, 512: 76}
_DIFFERS = "AdamW, not LAMB; hand-fused kernels as what torch.compile fuses; no CUDA graphs"
#: Beginning of an id -> what else differs.
DIFFERS: Mapping[str, str] = {
    "dle-": "loss of masked tokens only",
    "ml21-": "two samples of half the length as one whole one, attention to all of it",
    "ml4-": "bf16, not fp16; attention to the whole pack",
    "ml5-": "bf16, not fp16; attention to the whole pack",
    "ml5-gb200": "bf16, not fp16; attention to the whole pack; one group of all ranks",
}


def expressed(recipe: Recipe) -> Expressed | NoCase:
    """A row of BERT, without its memory."""
    sizes, ranks = recipe.sizes, recipe.parallelism["dp"]
    scaling = first(NARROW, recipe.compute)
    found = re.search(r"(\d+) accumulation", recipe.microbatches)
    batches, each = int(found[1]) if found else 1, each_of(recipe, {"dp": ranks}, 1)
    config = bert.Config(
        layers=sizes["layers"], width=sizes["hidden"], heads=sizes["heads"], hidden=sizes["ffn"],
        vocabulary=sizes["vocabulary"] + -sizes["vocabulary"] % 8, sequence=recipe.sequence,
        sequences=each, masked=MASKED[recipe.sequence], fused=recipe.attention.startswith("fused"),
        dtype=torch.bfloat16 if scaling else torch.float16,
    )  # fmt: skip
    system, accelerator = first(SYSTEMS, recipe.accelerator)

    def case(layers: int) -> Case:
        shallow = replace(config, layers=layers)

        def capture(count: int) -> Any:
            step = bert.training(shallow, ranks, count)
            with flash_first():
                return step.capture(options={"fuse": True, "audit": 0})

        return Case(
            run=as_run(recipe),
            measured=float("nan"),
            system=system,
            accelerator=accelerator,
            key=f"bert-{shallow}-{ranks}",
            expressed=f"{ranks} dp" + (f", {batches} batches" if batches > 1 else ""),
            note=f"{_DIFFERS}; {first(DIFFERS, recipe.id)}",
            capture=capture,
            batches=batches,
            recorded=(1,) if batches == 1 else (2, 3),
            attention="fused" if config.fused else "as-written",
        )

    parts = by_layers(case, config.layers, FEW)
    if isinstance(parts, NoCase):
        return parts
    differs = f"{parts[0].case.expressed}; {parts[0].case.note}"
    if scaling:
        wide = {config.vocabulary, each, each * config.masked}  # the heads' products
        tokens = each * recipe.sequence
        parts = weighted(parts, 1.0, narrow(SCALINGS[scaling], wide=wide, tokens=tokens))
        differs = f"{differs}; casts as narrow.py says"
    return Expressed(parts, ranks * each * batches, differs, memory=False)
