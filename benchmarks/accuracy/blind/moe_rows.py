"""Mixtures of Megatron-Core as our PyTorch model: parameters are gathered once a step.

The idea: Megatron's distributed optimizer is FSDP that keeps gathered parameters, as our model has
it in a pipeline; so a row is a pipeline of one stage, and one rank's layers of a longer one.

    ranks of one sequence (tp, cp)   sequences of as many tokens as a rank has, whose attention
                                     takes so many times longer; no exchanges among them
    expert parallelism               a token goes once to each rank (DeepEP, HybridEP)
    permutation                      Transformer Engine's kernels move rows and sums of rows at the
                                     memory's bandwidth, without atomic additions; biases of the
                                     experts are within their products' kernels
    fused grouped network            what is between grouped products is in their epilogues
                                     (``fused_network.py``)
    exchanges beside other work      what they would wait is taken off each batch but the first,
                                     except what they slow kernels down by

Rows of ``AS_PUBLISHED`` have neither the exchanges nor the permutation: all-to-alls of every row,
Megatron's own sums of rows, and where the row says so a product for each expert.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from attending import attending
from cases_of_runs import Case
from expressed import Expressed, Part, as_run
from fused_network import STATED, made_within, within_products
from narrow import narrow
from numpy.typing import NDArray
from recipes import Recipe
from scalings import SCALINGS
from torch_cases import ATTENTION, flash_first
from trainers import GATHERED, NARROW, SYSTEMS, first

from flint.cost.classes import named
from flint.cost.hardware import System
from flint.cost.kernels import Estimator
from flint.cost.systems import load_system
from flint.graph.graph import WorkloadGraph
from flint.models.mixtures import MIXTURES, SPARSE
from flint.models.torch import moe

#: Beginning of a row's model -> ours, and layers that are captured.
MODELS = {
    "GPT-OSS 20B": ("gpt-oss-20b", (2, 4)), "DeepSeek-V3": ("deepseek-v3", (1, 2)),
    "DeepSeek-V2-Lite": ("deepseek-v2-lite", (2, 4)), "DeepSeek-V2 236B": ("deepseek-v2", (1, 2)),
    "Qwen3-235B": ("qwen3-235b", (1, 2)),
}  # fmt: skip
#: Beginnings of ids of rows whose tokens go to each of their experts, without fused permutation.
AS_PUBLISHED = ("primus-dsv2lite-mbs1", "primus-dsv2lite-mbs4", "primus-dsv2-base")
#: Beginnings of ids of rows with forced routing: tokens to all experts in turn.
FORCED = ("primus-", "mz-")
#: Beginnings of ids of rows whose exchanges of experts are beside another batch's work.
BESIDE = ("m6-gb300-dsv3", "m6-gb200-dsv3", "mz-gb200-qwen235-mxfp8", "mz-gb300")
#: Beginning of an id -> ranks of data parallelism that are captured for it, on the same networks:
#: what is once in a step, not in every batch, depends on their number.
STANDS = {
    "m6-gb300-dsv3": 4, "m6-gb200-dsv3": 4, "m6-gb300-oss20b-16": 32, "m6-gb300-oss20b-72": 16,
    "m6-h100-oss20b": 16,
}  # fmt: skip
#: GPUs that a segment of a GB200's or GB300's job has in one NVLink domain.
SEGMENT = 64
_AXES = ("pp", "dp", "ep")


def expressed(recipe: Recipe) -> Expressed:
    """The step, without its memory: what is kept is partly in f8."""
    split, sizes = recipe.parallelism, recipe.sizes
    name, few = next(found for start, found in MODELS.items() if recipe.model.startswith(start))
    stages, shared = split["pp"], split["tp"] * split.get("cp", 1)
    each, batches = (
        int(found[1])
        for pattern in (r"micro batch (\d+)", r"(\d+) microbatches")
        if (found := re.search(pattern, recipe.microbatches))
    )
    plain = recipe.id in AS_PUBLISHED
    layers = -(-sizes["layers"] // stages)
    ranks = recipe.devices // stages
    mesh = (1, first(STANDS, recipe.id, ranks // split["ep"]), split["ep"])
    system, accelerator = first(SYSTEMS, recipe.accelerator)
    described = load_system(system)
    whole = replace(MIXTURES[name], vocabulary=sizes["vocabulary"])
    whole = replace(whole, experts=replace(whole.experts, biases=False))
    if stages > 1:
        whole = replace(whole, dense=0, period=(SPARSE,))
    # One more batch for every stage of a rank's that waits (Narayanan et al., 2021).
    more = batches - 1 + (stages - 1) / split.get("virtual_pp", 1)

    def case(count: int, recorded: int) -> Case:
        config = moe.Config(
            model=replace(whole, layers=count), sequence=recipe.sequence // shared, sequences=each,
            dispatch="once" if split["ep"] > 1 and not plain else "dropless",
            products="loop" if plain else "grouped", forced=recipe.id.startswith(FORCED),
            reduce_dtype=torch.bfloat16, fused=True,
        )  # fmt: skip

        def capture(number: int) -> Any:
            with flash_first():
                step = moe.training(replace(config, microbatches=number), mesh, axes=_AXES)
                return step.capture(options={"fuse": True, "audit": 0})

        return Case(
            run=as_run(recipe), measured=float("nan"), system=system, accelerator=accelerator,
            key=f"torch-moe-kept-{config.model}-{mesh}-{config.sequence}-{each}-{config.dispatch}"
            + (f"-{config.products}-forced" if config.forced else ""),
            expressed=f"{mesh[1]} dp x {mesh[2]} ep, {each} sequences a batch", note="",
            capture=capture, batches=recorded, recorded=(recorded,), attention=ATTENTION[True],
            accumulates=batches > 1, passes=("narrow",) if GATHERED.search(recipe.compute) else (),
            slice=SEGMENT if SEGMENT < described.network[0].size < math.prod(mesh) else 0,
        )  # fmt: skip

    beside = recipe.id.startswith(BESIDE)
    hidden = described.accelerator.kernel.beside_communication if beside else 0.0
    kernels = _kernels(recipe, described, each, shared)
    share = (layers - few[0]) / (few[1] - few[0])
    parts = []
    for weight, count in ((1 - share, few[0]), (share, few[1])):
        for times, recorded in ((1 - more, 1), (more, 2)) if batches > 1 else ((1.0, 1),):
            waits = hidden * weight * (more if recorded == 2 else -more)
            part = Part(weight * times, case(count, recorded), kernels, waits)
            parts.append(part)
    differs = _differs(recipe, parts[0].case)
    ranks_of_data = recipe.devices // stages // shared
    return Expressed(tuple(parts), ranks_of_data * each * batches, differs, memory=False)


def _kernels(recipe: Recipe, system: System, each: int, shared: int) -> Estimator:
    """Narrow products, whose weights are cast once a step, by the optimizer."""
    sizes, kernel = recipe.sizes, system.accelerator.kernel
    tokens = each * recipe.sequence // shared
    wide = {sizes["experts"], *(() if "with the head" in recipe.compute else [sizes["vocabulary"]])}
    share = kernel.matmul_efficiency * kernel.attention_efficiency / shared
    timed = attending(share) if recipe.id in AS_PUBLISHED else permuting(attending(share))
    fused = STATED in recipe.notes
    timed = within_products(timed) if fused else timed
    scaling = first(NARROW, recipe.compute)
    if not scaling:
        return timed
    return narrow(
        SCALINGS[scaling], wide=wide, tokens=tokens, kept=True, rows=tokens * sizes["top_k"],
        attention=recipe.narrow_attention, timed=timed,
        made=made_within if fused else None,
    )  # fmt: skip


def permuting(timed: Estimator) -> Estimator:
    """Kernels whose sums of rows take the time in which their bytes are moved."""

    def seconds(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
        found = timed(graph, system)
        accelerator = system.accelerator
        rate = accelerator.memory_bandwidth * accelerator.kernel.memory_efficiency
        for node in np.flatnonzero(named(graph, ("scatter",))).tolist():
            given = graph.operands_of(node)[1:]  # the first is what zeros are added to
            first_made, end = graph.inputs + graph.result_ptr[node : node + 2]
            made = range(int(first_made), int(end))
            moved = sum(int(graph.value_bytes[value]) for value in (*given, *made))
            found[node] = min(found[node], moved / rate)
        return found

    return seconds


def _differs(recipe: Recipe, case: Case) -> str:
    found = [case.expressed, "Transformer Engine's fused kernels as what torch.compile fuses"]
    found.append("loads balanced; no biases of experts")
    if recipe.parallelism["pp"] > 1:
        found.append("one rank of the pipeline, with both ends, its bubbles; no exchanges of ranks")
    if recipe.id.startswith(BESIDE):
        found.append("exchanges of experts beside another batch's work; one predicted token")
    if first(STANDS, recipe.id):
        found.append("other numbers of ranks of dp are alike")
    if case.slice:
        found.append(f"{case.slice} GPUs of a domain")
    if recipe.parallelism["tp"] * recipe.parallelism.get("cp", 1) > 1:
        found.append("ranks of tp and cp as data parallel, a part of the sequence each")
    if STATED in recipe.notes:
        found.append("what is between grouped products is in their epilogues")
    if recipe.id in AS_PUBLISHED:
        found.append("a token to each of its experts, a product for each expert")
    if first(NARROW, recipe.compute):
        wide = "" if GATHERED.search(recipe.compute) else ", gathers in bf16"
        found.append(f"casts as narrow.py says{wide}")
    return "; ".join(found)
