"""Recipes of PyTorch trainers (torchtitan, Megatron, NeMo, prime-rl, ...) as our PyTorch model.

The idea: sizes, mesh, batches, checkpointing are a row's; what it leaves open is ``trainers.py``'s.

    expressed(recipe)              # Expressed, or the reason why it is not
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import bert_rows
import dit
import lora_rows
import moe_rows
import vision_rows
from attending import stated
from cases_of_runs import Case, NoCase
from differing import DIFFERS, NO_MEMORY
from expressed import Expressed, Part, as_run, by_layers, weighted
from narrow import narrow
from outside import outside
from recipes import Recipe
from scalings import SCALINGS
from torch_cases import ATTENTION, flash_first, torch_case
from torch_cases import recipe as as_recipe
from torch_models import config_of, each_of, ends_of, mesh_of, of_rank, replicas
from trainers import (
    ACCUMULATED,
    ACCUMULATING,
    APART,
    ASYNCHRONOUS,
    BLOCKS,
    CHECKPOINTS,
    DEVICES,
    EAGER,
    FEW,
    FUSED,
    FUSED_ADAMW,
    GATHERED,
    GROUPED,
    KEPT,
    LIGER,
    MEGATRON,
    MIXED,
    NARROW,
    PACKED,
    PERMUTED,
    PIPELINES,
    PLAIN,
    PUBLISHED,
    REASONS,
    ROUTED,
    SENT,
    SHALLOW,
    SYSTEMS,
    WITHOUT,
    WRITTEN,
    first,
    how_lost,
)

from flint.cost.kernels import Estimator
from flint.models.mixtures import MIXTURES, Experts, Form, Heads, Mixture
from flint.models.torch import moe
from flint.models.torch.llama3_model import Config


def expressed(recipe: Recipe) -> Expressed | NoCase:
    """A recipe as the PyTorch model, or the reason why it is not expressed."""
    reason = _excluded(recipe)
    if reason:
        return NoCase(reason)
    device, evidence = first(DEVICES, recipe.id, ("", ""))
    recipe = replace(recipe, accelerator=device or recipe.accelerator)
    if recipe.id.startswith(MEGATRON) and "experts" in recipe.sizes:
        return moe_rows.expressed(recipe)
    if "experts" in recipe.sizes:
        return _mixture(recipe, evidence)
    for size, rows in _OTHERS.items():
        if size in recipe.sizes:
            return rows(recipe)
    recipe = replace(recipe, compiled=recipe.compiled and not recipe.id.startswith(EAGER))
    recipe, bubbles = of_rank(recipe)
    packed = first(PACKED, recipe.id, 1)
    recipe = replace(recipe, sequence=recipe.sequence // packed, batch=recipe.batch * packed)
    mesh, config = mesh_of(recipe), config_of(recipe)
    found = re.search(r"(\d+) (accumulations|microbatches)", recipe.microbatches)
    accumulated = int(found[1]) if found else first(ACCUMULATED, recipe.id, 1)
    each = each_of(recipe, mesh, accumulated)
    words = [first(CHECKPOINTS, recipe.remat), "compile" if recipe.compiled else ""]
    run = as_run(recipe, words, accumulated + bubbles, each)
    sharded: bool | str = (
        "zero" in recipe.parallelism and not recipe.id.startswith("ca-70b")
    ) or recipe.id.startswith("nanochat")
    sharded = sharded and recipe.parallelism.get("zero") != "stage 3"
    sharded = "weights" if sharded and recipe.parallelism.get("zero") == 2 else sharded
    config = replace(as_recipe(run, config), keep=sharded, **ends_of(recipe, mesh))
    system, accelerator = first(SYSTEMS, recipe.accelerator)
    note = "; ".join(filter(None, (first(DIFFERS, recipe.id, ""), evidence)))

    def case(layers: int) -> Case | NoCase:
        shallow = replace(config, layers=layers)
        fused = recipe.framework.startswith(FUSED) and not recipe.id.startswith(WRITTEN)
        fused = fused or recipe.id.startswith(LIGER)
        slice_ = 36 if recipe.id.startswith("bionemo-gb300") else 0
        made = torch_case(
            run, shallow, mesh, system, accelerator, note=note, fused=fused, slice_=slice_,
            accumulates=recipe.framework.startswith(ACCUMULATING)
            and not recipe.id.startswith(APART),
            plain=recipe.id.startswith(PLAIN),
        )  # fmt: skip
        if isinstance(made, Case) and "pp" in mesh and recipe.id.startswith(PIPELINES):
            made = replace(made, recorded=(accumulated,))
        if isinstance(made, Case) and recipe.id.startswith(ASYNCHRONOUS):
            made = replace(made, passes=("decompose",))
        if isinstance(made, Case) and GATHERED.search(recipe.compute):
            made = replace(made, passes=(*made.passes, "narrow"))
        return made

    # A peak is the largest of several moments' memory, each a line in the layers: the line through
    # two shallow steps lies below it.
    memory = first(NO_MEMORY, recipe.id) is None
    kept = recipe.memory and memory and not recipe.id.startswith(SHALLOW)
    whole = kept or "pp" in mesh
    few = (config.layers, config.layers + 1) if whole else FEW
    parts = by_layers(case, config.layers, few)
    if isinstance(parts, NoCase):
        return parts
    scaling = first(NARROW, recipe.compute)
    timed, kernel = stated(recipe)
    parts = weighted(parts, 1.0, timed) if kernel else parts
    if scaling:
        parts = _narrow(recipe, parts, scaling, config, each, mesh, timed)
        wide = "" if GATHERED.search(recipe.compute) else ", gathers in bf16"
        note = "; ".join(filter(None, (note, f"casts as narrow.py says{wide}")))
    differs = "; ".join(filter(None, (parts[0].case.expressed, note, kernel)))
    return Expressed(parts, replicas(mesh) * each * accumulated // packed, differs, memory)


#: A size that rows of other models have -> how they are expressed.
_OTHERS: Mapping[str, Callable[[Recipe], Expressed | NoCase]] = {
    "lora": lora_rows.expressed,
    "encoder": bert_rows.expressed,
    "network": vision_rows.expressed,
    "patch": dit.expressed,
}


def _excluded(recipe: Recipe) -> str:
    """Why no model expresses a row; "" if one does."""
    reason = first(REASONS, recipe.id)
    if reason:
        return str(reason)
    if "double_blocks" in recipe.sizes or "image_tokens" in recipe.sizes:
        return "a diffusion transformer: no such PyTorch model here"
    if recipe.id.startswith("trn1"):
        return "no description of Trainium here"
    if recipe.parallelism.get("pp", 1) > 2 and not recipe.id.startswith(PIPELINES):
        return "a pipeline of many stages: recording all of them takes too long for this page"
    checkpointed = "experts" in recipe.sizes and first(CHECKPOINTS, recipe.remat)
    if checkpointed and not recipe.id.startswith(MIXED):
        return "a mixture of experts with checkpointing: no such PyTorch recipe here"
    return ""


def _mixture(recipe: Recipe, evidence: str) -> Expressed | NoCase:
    """A mixture; long batches lie on the line through one sequence a rank and two."""
    sizes = recipe.sizes
    experts = recipe.parallelism["ep"]
    mesh = (recipe.devices // experts, experts)
    found = re.search(r"(\d+) microbatches", recipe.microbatches)
    accumulated = int(found[1]) if found else 1
    system, accelerator = first(SYSTEMS, recipe.accelerator)
    kept: bool | str = recipe.remat.startswith("full") and recipe.id not in WITHOUT
    kept = "selective" if recipe.remat.startswith("selective") else kept
    published = first(PUBLISHED, recipe.id)
    batches = 1 if accumulated > 1 or published else recipe.batch // recipe.devices
    each = each_of(recipe, {"dp": recipe.devices}, accumulated) if published else 1
    fused = recipe.compiled or recipe.framework.startswith(FUSED)
    dispatch = first(SENT, recipe.id, "dropless")
    form = Form(norm="learned") if "Qwen3" in recipe.model and not published else None
    adamw = "adamw" * recipe.id.startswith(FUSED_ADAMW)
    marks = (each > 1 and each, dispatch != "dropless" and dispatch, form and "normed", adamw)

    def case(layers: int) -> Case:
        def capture(sequences: int) -> Any:
            experts = Experts(
                count=sizes["experts"], chosen=sizes["top_k"], hidden=sizes["expert_ffn"]
            )
            if published:
                model = replace(MIXTURES[published], layers=layers)
            else:
                heads = Heads(
                    queries=sizes["heads"], keys=sizes["kv_heads"], size=sizes["head_dim"]
                )
                model = Mixture(
                    layers=layers, width=sizes["hidden"], heads=heads, experts=experts,
                    vocabulary=sizes["vocabulary"], form=form,
                )  # fmt: skip
            config = moe.Config(
                model=model,
                sequence=recipe.sequence,
                sequences=sequences * each,
                checkpoint=kept,
                dispatch=dispatch,
                forced=bool(published) and not recipe.id.startswith(ROUTED),
                fused=bool(adamw),
            )
            with flash_first():
                return moe.training(config, mesh).capture(options={"fuse": fused})

        return Case(
            run=as_run(recipe, ["compile" if recipe.compiled else ""]),
            measured=float("nan"),
            system=system,
            accelerator=accelerator,
            key=f"torch-moe-{published or sizes}-{layers}-{mesh}-{recipe.sequence}-{kept}-{fused}"
            + "".join(f"-{mark}" for mark in marks if mark),
            expressed=f"{mesh[0]} dp x {mesh[1]} ep{', opened' if fused else ''}, "
            f"{recipe.batch // recipe.devices} sequences a rank",
            note="; ".join(filter(None, (first(DIFFERS, recipe.id, ""), evidence))),
            capture=capture,
            batches=batches,
            recorded=(1,) if batches == 1 else (1, 2),
            attention=ATTENTION[fused],
        )

    parts = by_layers(case, sizes["layers"], FEW)
    assert not isinstance(parts, NoCase)
    parts = tuple(replace(part, weight=part.weight * accumulated) for part in parts)
    timed, kernel = stated(recipe)
    parts = weighted(parts, 1.0, timed) if kernel else parts
    if recipe.id.startswith(PERMUTED):
        parts = weighted(parts, 1.0, moe_rows.permuting(timed))
    shared = sizes.get("shared_experts") and not published
    beside = _beside(recipe, {"dp": recipe.devices}, system, accelerator) if shared else ()
    if recipe.compiled and recipe.id.startswith(BLOCKS):
        dense = replace(recipe, sizes={**sizes, "ffn": sizes["expert_ffn"]})
        model = replace(
            as_recipe(as_run(recipe, (), 1, 1), config_of(dense)), **how_lost(recipe, {})
        )
        ends = outside(recipe, model, {"dp": recipe.devices}, 1, 1)
        parts += tuple(replace(part, weight=part.weight * accumulated) for part in ends)
    if recipe.compute in GROUPED:
        wide = sizes["vocabulary"], sizes["experts"]
        mx = partial(narrow, SCALINGS["torchao mxfp8"], wide=wide)
        only = GROUPED[recipe.compute]
        parts = weighted(parts, 1.0, mx(grouped=only))
        beside = weighted(beside, 1.0, None if only else mx())
    parts += beside
    differs = "; ".join(filter(None, (parts[0].case.expressed, parts[0].case.note, kernel)))
    return Expressed(parts, recipe.batch, differs, memory=False)


def _beside(
    recipe: Recipe, mesh: Mapping[str, int], system: str, accelerator: str
) -> tuple[Part, ...]:
    """The cost of a dense network in addition to a mixture: what doubling it adds to a dense
    model.
    """
    width = recipe.sizes["expert_ffn"]
    run = as_run(recipe, ["compile"], 1, recipe.batch // recipe.devices)
    found = []
    for weight, hidden in ((1.0, 2 * width), (-1.0, width)):
        dense = replace(recipe, sizes={**recipe.sizes, "ffn": hidden})
        case = torch_case(run, as_recipe(run, config_of(dense)), mesh, system, accelerator)
        assert isinstance(case, Case)
        found.append(Part(weight, case))
    return tuple(found)


def _narrow(
    recipe: Recipe, parts: tuple[Part, ...], name: str, config: Config, each: int,
    mesh: Mapping[str, int], timed: Estimator,
) -> tuple[Part, ...]:  # fmt: skip
    """The sum with linear products in a narrow type; where some layers stay, that share stays."""
    vocabulary = {config.vocabulary // share for share in (1, mesh.get("tp", 1))}
    tokens = each * config.sequence // mesh.get("cp", 1)
    wide = () if "all linears" in recipe.compute else vocabulary
    stays = recipe.id.startswith(KEPT) and "kept" in recipe.compute
    torchao = re.search("torchtitan|torchao", recipe.framework + recipe.compute)
    theirs = f"torchao {name}" if torchao and recipe.compiled else name
    scaling = SCALINGS.get(theirs, SCALINGS[name])
    kernels = narrow(
        scaling, wide=wide, tokens=tokens, kept=stays or bool(GATHERED.search(recipe.compute)),
        attention=recipe.narrow_attention, timed=timed,
    )  # fmt: skip
    some = re.search(r"in layers 0-(\d+)", recipe.compute)
    share = (int(some[1]) + 1) / recipe.sizes["layers"] if some else 1.0
    whole = partial(weighted, parts)
    if scaling.apart:  # the other blocks are not checkpointed
        share = {"": 0.0, "every 2nd block AC": 0.5}.get(first(CHECKPOINTS, recipe.remat), 1.0)
        timed = narrow(SCALINGS["eager, kept"], wide=wide, tokens=tokens, timed=timed)
    return whole(share, kernels) + (whole(1 - share, timed) if share < 1 else ())
