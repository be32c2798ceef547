"""Recipes of PyTorch trainers (torchtitan, Megatron, NeMo, prime-rl, ...) as our PyTorch model.

The idea: sizes, mesh, batches and checkpointing are read from the row; what rows leave open, and
what the model lacks, is in a table by the beginnings of their ids.

    expressed(recipe)              # Expressed, or the reason why it is not

Longer than 300 lines because it is one table of trainers, with what each row leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from cases_of_runs import Case, NoCase
from expressed import Expressed, Part, as_run, by_layers, weighted
from narrow import SCALINGS, narrow
from numpy.typing import NDArray
from recipes import HERE, Recipe
from torch_cases import ATTENTION, torch_case
from torch_cases import recipe as as_recipe

from flint.cost.hardware import System
from flint.cost.kernels import Estimator, kernel_seconds
from flint.graph.graph import WorkloadGraph
from flint.models.mixtures import Experts, Heads, Mixture
from flint.models.torch import moe
from flint.models.torch.llama3_model import Config

#: Beginning of a row's accelerator -> system, accelerator.
SYSTEMS: Mapping[str, tuple[str, str]] = {
    "H100 96GB": (str(HERE.parent / "grand-teton.toml"), "h100-500w"),
    "H100": ("dgx-h100", "h100-sxm"),
    "H200": ("hgx-h200", "h200-sxm"),
    "B200": ("dgx-b200", "b200"),
    "GB200": ("gb200-nvl72", "gb200"),
    "GB300": (str(HERE / "gb300.toml"), "gb300"),
    "MI300X": ("mi300x-8", "mi300x"),
    "MI355X": (str(HERE / "mi355x.toml"), "mi355x"),
    "MI325X": (str(HERE / "mi325x.toml"), "mi325x"),
    "A100": ("dgx-a100", "a100-sxm"),
    "A100 80GB (400": (str(HERE.parent / "a100-400gbps.toml"), "a100-sxm"),
}
#: Beginning of a row's remat -> the word for it; "none" and likely none have no entry.
CHECKPOINTS: Mapping[str, str] = {
    "selective": "SAC",
    "full": "full AC",
    "every 2nd": "every 2nd block AC",
    "not stated (torchtitan": "SAC",
    "not stated (recipe": "",
    "not stated (none": "",
    "not stated": "full AC",
    "none": "",
    "": "",
}
#: Beginning of a row's element types -> scaling of its products.
NARROW: Mapping[str, str] = {
    "float8 tensorwise": "tensorwise",
    "float8 rowwise linears with": "rowwise_gw_hp",
    "float8 rowwise": "rowwise",
    "mxfp8 linears": "mxfp8",
    "NVFP4": "nvfp4",
    "fp8": "delayed",
}
#: Frameworks whose elementwise kernels are fused, though no compiler does it.
FUSED = (
    "Megatron",
    "NeMo",
    "Primus",
    "BioNeMo",
    "PyTorch FSDP + Transformer",
    "DeepSpeed",
    "PyTorch + Transformer",
    "llm.c",
    "flash-attention training",
)
#: Beginnings of ids of rows whose Triton kernels fuse norms, rotation and loss.
LIGER = ("fa-mistral-1-b8-foak", "fa-mistral-4-b16-foak", "fa-llama8b-4-b16-liger")
#: Beginnings of ids of rows whose parameters and optimizer states are in bf16.
BF16 = ("fa-mistral-1", "fa-mistral-2", "tune-")
#: Beginning of an id -> evidence that a row's GPUs differ from those that it names.
DEVICES: Mapping[str, tuple[str, str]] = dict.fromkeys(
    ("ao-h100", "aonc-"),
    (
        "H100 96GB",
        "torchao's logs (its pull request 1802) tell GPUs of 95 GiB: those of 500 W",
    ),
)
#: Beginning of an id -> why no model expresses the row.
REASONS: Mapping[str, str] = {
    "me-8b-h200-64k": "the optimizer runs on the CPU, whose speed is not stated",
    "me-8b-h200-256k": "the optimizer runs on the CPU, whose speed is not stated",
    "me-8b-b200-64k": "the optimizer runs on the CPU, whose speed is not stated",
    "me-8b-b200-256k": "the optimizer runs on the CPU, whose speed is not stated",
    "rn50-": "no such recipe here",
}
#: FlashAttention 2's share of the peak, forward and backward.  H100: Shah et al., FlashAttention-3
#: (2024), section 1.  B200: it has no kernels for it; 350 TFLOP/s (tritonbench, pull request 171).
FLASH2: Mapping[str, float] = {"H100": 0.35, "H200": 0.35, "B200": 0.155}
#: How ids begin -> samples of a packed sequence that do not see each other (``cu_seqlens`` of
#: InternEvo's ``PackedDatasetWithoutCuSeqlen``; mended after the figures were opened).
PACKED: Mapping[str, int] = {"ie-": 8}
#: Layers that are captured of deeper models.
FEW = (2, 4)
#: Beginning of an id -> what the row leaves open: batches of a step.
ACCUMULATED: Mapping[str, int] = {"primus-mi325x-8b": 8, "nemo-b200-llama3-8b-8k": 64,
    "nemo-b200-llama3-8b-16k": 16}  # fmt: skip
#: Beginning of an id -> what differs from the run, in addition to the columns.
DIFFERS: Mapping[str, str] = {
    "ao-b200": "the power limit is not published",
    "tt-gb200-qwen3": "no norm of queries and keys; loss not in chunks",
    "tt-gb200": "loss not in chunks",
    "tt-qwen": "no norm of queries and keys",
    "prime-": "no norm of queries and keys; embedding and head are two matrices",
    "rlprime-q30b": "no norm of queries and keys; the optimizer counts twice",
    "rlprime-": "no norm of queries and keys; embedding and head are two matrices",
    "prl-": "no norm of queries and keys; the optimizer counts twice",
    "lf-": "embedding and head are two matrices",
    "tune-": "scores of whole sequences, not of packed samples; embedding and head are two "
    "matrices",
    "me-": "gradients and optimizer states sharded, as FSDP keeps gathered parameters",
    "ca-7b": "gradients and optimizer states sharded, as FSDP keeps gathered parameters",
    "ca-70b": "parameters sharded, too",
    "mlp-": "Transformer Engine's fused kernels as what torch.compile fuses; attention in 16 bits",
    "te-mi300x": "Transformer Engine's fused kernels as what torch.compile fuses",
    "ao-gb200-scout": "the shared expert as a wider dense network",
    "ie-": "eight samples of 2,048 packed; optimizer and parameters sharded in a node",
    "kf-": "experts in one parameter; no padding to the busiest; no loss that balances",
    "bionemo-gb300": "36 GPUs in one NVLink domain; context parallelism as PyTorch runs it",
    "bionemo-og2": "sequences are not packed: scores of the whole sequence",
    "nanotron": "embedding and head are two matrices; vocabulary padded to 50260",
    "nanochat": "AdamW, not Muon; full attention, no windows; SwiGLU of as many FLOPs, not relu^2; "
    "no value embeddings, no norm of queries and keys",
    "primus-mi325x-70b": "accumulation and checkpointing are not published: 1, and all blocks",
    "primus-mi325x-8b": "accumulation and checkpointing are not published: 8, and none",
    "mlm-": "Transformer Engine's fused kernels as what torch.compile fuses",
    "nemo-": "Transformer Engine's fused kernels as what torch.compile fuses",
    "ao-b200-scout2l": "the shared expert as a wider dense network",
    "primus-mi355x-qwen30b": "no blocks checkpointed; no norm of queries and keys",
    "a100-fastdit": "causal scores; blocks without modulation; no EMA; memory of the A100: 80 GB",
}
#: Element types of mixtures -> which products are narrow: of the experts, others, both.
GROUPED: Mapping[str, bool | None] = {
    "mxfp8 linears, bf16 grouped products": False,
    "mxfp8 grouped products of the experts, bf16 linears": True,
    "mxfp8 linears and grouped products": None,
    "mxfp8 linears and grouped products of the experts; head, router, key and value projections "
    "bf16": None,
}
#: Mixtures whose checkpointing is expressed, or left out.
MIXED = ("primus-mi355x-qwen30b", "rlprime-", "kf-", "prl-")
WITHOUT = ("primus-mi355x-qwen30b-8",)
#: Why a row's memory is unknown, by the beginnings of ids.
NO_MEMORY: Mapping[str, str] = {
    "tt-gb200": "loss in chunks keeps less",
    "nanochat": "Muon keeps less than AdamW",
}


def first(table: Mapping[str, Any], text: str, default: Any = None) -> Any:
    """The entry whose key ``text`` begins with, the longest one."""
    keys = sorted((key for key in table if text.startswith(key)), key=len)
    return table[keys[-1]] if keys else default


def expressed(recipe: Recipe) -> Expressed | NoCase:
    """A recipe as the PyTorch model, or the reason why it is not expressed."""
    reason = _excluded(recipe)
    if reason:
        return NoCase(reason)
    if "experts" in recipe.sizes:
        return _mixture(recipe)
    device, evidence = first(DEVICES, recipe.id, ("", ""))
    recipe = replace(recipe, accelerator=device or recipe.accelerator)
    packed = first(PACKED, recipe.id, 1)
    recipe = replace(recipe, sequence=recipe.sequence // packed, batch=recipe.batch * packed)
    mesh, config = mesh_of(recipe), config_of(recipe)
    found = re.search(r"(\d+) (accumulations|microbatches)", recipe.microbatches)
    accumulated = int(found[1]) if found else first(ACCUMULATED, recipe.id, 1)
    each = _each(recipe, mesh, accumulated)
    words = [first(CHECKPOINTS, recipe.remat), "compile" if recipe.compiled else ""]
    run = as_run(recipe, words, accumulated, each)
    sharded = (
        "zero" in recipe.parallelism and not recipe.id.startswith("ca-70b")
    ) or recipe.id.startswith("nanochat")
    config = replace(as_recipe(run, config), keep=sharded)
    system, accelerator = first(SYSTEMS, recipe.accelerator)
    note = "; ".join(filter(None, (first(DIFFERS, recipe.id, ""), evidence)))

    def case(layers: int) -> Case | NoCase:
        shallow = replace(config, layers=layers)
        fused = recipe.framework.startswith(FUSED) or recipe.id.startswith(LIGER)
        slice_ = 36 if recipe.id.startswith("bionemo-gb300") else 0
        return torch_case(
            run, shallow, mesh, system, accelerator, note=note, fused=fused, slice_=slice_
        )

    parts = by_layers(case, config.layers, FEW)
    if isinstance(parts, NoCase):
        return parts
    scaling = first(NARROW, recipe.compute)
    if scaling:
        parts = _narrow(recipe, parts, scaling, config, each, mesh)
        note = "; ".join(filter(None, (note, "casts as narrow.py says, gathers in bf16")))
    differs = "; ".join(filter(None, (parts[0].case.expressed, note)))
    if not scaling and recipe.attention == "FlashAttention 2" and recipe.compiled:
        parts = weighted(parts, 1.0, attending(first(FLASH2, recipe.accelerator)))
        differs = f"{differs}; FlashAttention 2"
    memory = first(NO_MEMORY, recipe.id) is None
    return Expressed(parts, replicas(mesh) * each * accumulated // packed, differs, memory)


def attending(share: float) -> Estimator:
    """Kernels whose fused attention reaches a share of the peak."""

    def seconds(graph: WorkloadGraph, system: System) -> NDArray[np.float64]:
        accelerator = system.accelerator
        model = accelerator.kernel
        slower = replace(model, attention_efficiency=share / model.matmul_efficiency)
        return kernel_seconds(
            graph, replace(system, accelerator=replace(accelerator, kernel=slower))
        )

    return seconds


def replicas(mesh: Mapping[str, int]) -> int:
    """Ranks with sequences of their own."""
    return mesh.get("dp", 1) * mesh.get("dp_replicate", 1)


def _excluded(recipe: Recipe) -> str:
    """Why no model expresses a row; "" if one does."""
    reason = first(REASONS, recipe.id)
    if reason:
        return str(reason)
    if "double_blocks" in recipe.sizes or "image_tokens" in recipe.sizes:
        return "a diffusion transformer: no such PyTorch model here"
    if recipe.id.startswith("trn1"):
        return "no description of Trainium here"
    if recipe.sizes.get("attention") == "MLA":
        return "latent attention: no such PyTorch model here"
    if recipe.parallelism.get("pp", 1) > 2:
        return "a pipeline of many stages: recording all of them takes too long for this page"
    checkpointed = "experts" in recipe.sizes and first(CHECKPOINTS, recipe.remat)
    if checkpointed and not recipe.id.startswith(MIXED):
        return "a mixture of experts with checkpointing: no such PyTorch recipe here"
    return ""


def config_of(recipe: Recipe) -> Config:
    """The model of a row."""
    sizes = recipe.sizes
    if recipe.id.startswith("a100-fastdit"):
        return Config(
            layers=28, width=1152, heads=Heads(queries=16, keys=16, size=72), hidden=4608,
            vocabulary=32, dtype=torch.float16, style="gpt",
        )  # fmt: skip
    hidden = sizes["ffn"]
    if sizes.get("mlp") == "relu^2":  # two matrices, of as many FLOPs as three
        hidden = round(hidden * 2 / 3 / 128) * 128
    vocabulary = sizes["vocabulary"]
    more: dict[str, Any] = {}
    if sizes.get("learned_positions"):  # MPT; FSDP reduces in the type of the gathered parameters
        more = {"style": "gpt", "reduce_dtype": torch.bfloat16}
    if recipe.id.startswith(BF16):
        more = {"kept_dtype": torch.bfloat16}
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
    mesh = {
        "pp": split.get("pp", 1),
        "dp_replicate": split.get("dp_replicate", 1),
        "dp": data,
        "cp": split.get("cp", 1),
        "tp": split.get("tp", 1),
    }
    return {axis: count for axis, count in mesh.items() if count > 1} or {"dp": 1}


def _mixture(recipe: Recipe) -> Expressed | NoCase:
    """A mixture; long batches lie on the line through one sequence a rank and two."""
    sizes = recipe.sizes
    experts = recipe.parallelism["ep"]
    mesh = (recipe.devices // experts, experts)
    found = re.search(r"(\d+) microbatches", recipe.microbatches)
    accumulated = int(found[1]) if found else 1
    system, accelerator = first(SYSTEMS, recipe.accelerator)
    note = first(DIFFERS, recipe.id, "")
    heads = Heads(queries=sizes["heads"], keys=sizes["kv_heads"], size=sizes["head_dim"])
    run = as_run(recipe, ["compile" if recipe.compiled else ""])
    kept = recipe.remat.startswith("full") and recipe.id not in WITHOUT
    batches = 1 if accumulated > 1 else recipe.batch // recipe.devices

    def case(layers: int) -> Case:
        def capture(sequences: int) -> Any:
            experts = Experts(
                count=sizes["experts"], chosen=sizes["top_k"], hidden=sizes["expert_ffn"]
            )
            model = Mixture(
                layers=layers, width=sizes["hidden"], heads=heads, experts=experts,
                vocabulary=sizes["vocabulary"],
            )  # fmt: skip
            config = moe.Config(
                model=model, sequence=recipe.sequence, sequences=sequences, checkpoint=kept
            )
            return moe.training(config, mesh).capture(options={"fuse": recipe.compiled})

        return Case(
            run=run,
            measured=float("nan"),
            system=system,
            accelerator=accelerator,
            key=f"torch-moe-{sizes}-{layers}-{mesh}-{recipe.sequence}-{kept}-{recipe.compiled}",
            expressed=f"{mesh[0]} dp x {mesh[1]} ep{', opened' if recipe.compiled else ''}, "
            f"{recipe.batch // recipe.devices} sequences a rank",
            note=note,
            capture=capture,
            batches=batches,
            recorded=(1,) if batches == 1 else (1, 2),
            attention=ATTENTION[recipe.compiled],
        )

    parts = by_layers(case, sizes["layers"], FEW)
    assert not isinstance(parts, NoCase)
    parts = tuple(replace(part, weight=part.weight * accumulated) for part in parts)
    beside: tuple[Part, ...] = ()
    if sizes.get("shared_experts"):
        beside = _beside(recipe, {"dp": recipe.devices}, system, accelerator)
    if recipe.compute in GROUPED:
        mx = partial(narrow, SCALINGS["mxfp8"], wide=(sizes["vocabulary"], sizes["experts"]))
        only = GROUPED[recipe.compute]
        parts = weighted(parts, 1.0, mx(grouped=only))
        beside = weighted(beside, 1.0, None if only else mx())
    parts += beside
    return Expressed(parts, recipe.batch, f"{parts[0].case.expressed}; {note}", memory=False)


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


def _each(recipe: Recipe, mesh: Mapping[str, int], accumulated: int) -> int:
    """Sequences of a batch per data-parallel rank."""
    stated = re.search(r"micro batch (\d+)", recipe.microbatches)
    return int(stated[1]) if stated else recipe.batch // (replicas(mesh) * accumulated)


def _narrow(
    recipe: Recipe, parts: tuple[Part, ...], name: str, config: Config, each: int,
    mesh: Mapping[str, int],
) -> tuple[Part, ...]:  # fmt: skip
    """The sum with linear products in a narrow type; where some layers stay, that share stays."""
    vocabulary = {config.vocabulary // share for share in (1, mesh.get("tp", 1))}
    tokens = each * config.sequence // mesh.get("cp", 1)
    wide = () if "all linears" in recipe.compute else vocabulary
    kernels = narrow(SCALINGS[name], wide=wide, tokens=tokens)
    some = re.search(r"in layers 0-(\d+)", recipe.compute)
    share = (int(some[1]) + 1) / recipe.sizes["layers"] if some else 1.0
    whole = partial(weighted, parts)
    return whole(share, kernels) + (whole(1 - share, None) if share < 1 else ())
