"""Published MaxText runs on TPUs, as our JAX Llama expresses them.

The idea: MaxText's dense models are Llama with other sizes; what a run keeps for the backward pass
and how it splits the model is in its recipe. If our model has no such policy, the nearest is taken,
and the configuration states this.  Attention is splash attention in all of them (``attention:
"flash"``, MaxText's default on TPUs): spelled out here, and timed as the fused kernel.

    case = case_of(run)            # a Case, or the reason why there is none
    case.capture(), case.system

Sources: MaxText configs (github.com/AI-Hypercomputer/maxtext: MaxText/configs/v5e, v5p,
configs/models, benchmarks/maxtext_trillium_model_configs.py) and the recipes in the rows' urls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cases_of_runs import Case, NoCase
from published import Run, maxtext_flops

from flint.models.jax import moe
from flint.models.jax.layers import Heads, attention, cudnn_attention
from flint.models.jax.llama3 import (
    LLAMA3_8B,
    LLAMA3_70B,
    LLAMA3_405B,
    Config,
    training,
)
from flint.models.jax.moe_routing import Experts

LLAMA2_70B = replace(LLAMA3_70B, vocabulary=32000, sequence=4096)
MISTRAL_7B = replace(LLAMA3_8B, vocabulary=32000)
GPT3_175B = Config(
    layers=96, width=12288, heads=Heads(queries=96, keys=96, size=128), hidden=49152,
    vocabulary=50304, sequence=2048, gated=False,
)  # fmt: skip
MODELS = {
    "llama3.1-8b": LLAMA3_8B,
    "llama3.1-70b": LLAMA3_70B,
    "llama3.1-405b": LLAMA3_405B,
    "llama2-70b": LLAMA2_70B,
    "mistral-7b": MISTRAL_7B,
    "gpt3-175b": GPT3_175B,
}
#: Mixtral as the recipes run it, mixtral_8x7b_dropped and mixtral_8x22b_dropped of
#: maxtext_trillium_model_configs.py: capacity_factor 1.25, and what is beyond is dropped.
_MIXTRAL_8X7B = replace(
    moe.MIXTRAL_8X7B, experts=replace(moe.MIXTRAL_8X7B.experts, capacity_factor=1.25), balance=0.0
)
MIXTURES = {
    "mixtral-8x7b": _MIXTRAL_8X7B,
    "mixtral-8x22b": replace(
        _MIXTRAL_8X7B,
        layers=56,
        width=6144,
        heads=Heads(queries=48, keys=8, size=128, theta=1e6),
        experts=Experts(count=8, chosen=2, hidden=16384, capacity_factor=1.25),
        vocabulary=32768,
    ),
}


def scaled(scale: int) -> Config:
    """MaxText's default model at a ``global_parameter_scale``: 16 is 16 billion parameters.

    Doubling goes round: heads and hidden width, then width, then layers (``pyconfig.py``,
    ``get_individual_scales``; sizes of scale 1 in ``configs/base.yml``).
    """
    base, rest = divmod(scale.bit_length() - 1, 3)
    heads = 16 << (base + (rest > 0))
    return Config(
        layers=16 << base,
        width=2048 << (base + (rest > 1)),
        heads=Heads(queries=heads, keys=heads, size=128),
        hidden=7168 << (base + (rest > 0)),
        vocabulary=32000,
        sequence=2048,
    )


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a run is configured.

    Attributes:
        batch: sequences of a device's batch.
        remat: our policy.
        tensor: ranks of tensor parallelism.
        note: what differs from the published run.
        experts: ranks of expert parallelism.
        context: devices that a sequence is split over.
        replicas: of sharded groups within a slice.
    """

    batch: float
    remat: str
    tensor: int = 1
    note: str = ""
    experts: int = 1
    context: int = 1
    replicas: int = 1


_OFFLOAD = "activations offloaded to the host are kept on the device"
_ATTENTION = Recipe(0, "attention", note=_OFFLOAD)
_PROJECTIONS = Recipe(0, "projections", note=_OFFLOAD)
#: (model, chips) -> recipe, of TPU v6e.
TRILLIUM: dict[tuple[str, int], Recipe] = {
    ("llama3.1-8b", 8): replace(_ATTENTION, batch=3),
    ("llama3.1-8b", 16): replace(_ATTENTION, batch=3),
    ("llama3.1-8b", 32): replace(_ATTENTION, batch=3),
    ("llama3.1-8b", 128): replace(_ATTENTION, batch=4),
    ("llama3.1-8b", 256): replace(_ATTENTION, batch=4),
    ("llama3.1-70b", 32): replace(
        _PROJECTIONS, batch=2, note=_OFFLOAD + "; parameters are f32, not bf16"
    ),
    ("llama3.1-70b", 64): replace(_PROJECTIONS, batch=2),
    ("llama3.1-70b", 128): replace(_PROJECTIONS, batch=4),
    ("llama3.1-70b", 256): replace(_PROJECTIONS, batch=5),
    ("gpt3-175b", 256): Recipe(3, "full"),
    # The log's 9.052 s at 905 tokens/s are 8192 tokens: two sequences, not the three of the recipe.
    ("llama2-70b", 256): replace(_PROJECTIONS, batch=2),
    ("mistral-7b", 8): replace(_ATTENTION, batch=6, note=_OFFLOAD + "; no attention window"),
    ("llama3.1-405b", 512): Recipe(1, "full", note=_OFFLOAD),
    ("mixtral-8x7b", 256): replace(_ATTENTION, batch=12),
    ("mixtral-8x22b", 256): replace(_ATTENTION, batch=8, experts=4),
}
#: Scale -> recipe; of TPU v5e and of v5p.
V5E = {
    16: Recipe(6, "full"),
    32: Recipe(4, "full"),
    64: Recipe(2, "full"),
    128: Recipe(1, "dots", 16, _OFFLOAD),
}
V5P = {  # scripts since February 2024
    32: Recipe(6, "dots", 4),
    64: Recipe(3, "dots", 4),
    128: Recipe(1, "dots", 8),
    512: Recipe(2, "full", 8),
    1024: Recipe(2, "full", 8),
}
#: Chips of a slice; more are data parallel over the data-centre network.
_SLICE_V5P = {32: 64, 64: 64, 128: 128, 512: 512, 1024: 1024}
_PEAK = {"v4": 275e12, "v6e": 918e12, "v5e": 197e12, "v5p": 459e12, "v7x": 2307e12}


def case_of(run: Run) -> Case | NoCase:
    """How the model expresses a run, or the reason why it does not."""
    if not run.gpus.split()[0].isdigit():
        return NoCase("the number of chips is not published")
    chips = int(run.gpus.split()[0])
    kind = next(name for name in _PEAK if name in run.gpu_type)
    if run.model.startswith("MaxText GPT-style"):
        scale = int(run.model.split()[-1].removesuffix("B"))
        recipe = (V5E if kind == "v5e" else V5P)[scale]
        slice_ = 256 if kind == "v5e" else _SLICE_V5P[scale]
        return dense_case(run, scaled(scale), recipe, chips, slice_, kind)
    reason = _excluded(run, kind)
    if reason:
        return NoCase(reason)
    if kind == "v5p":
        recipe = Recipe(4, "narrow")
        return dense_case(run, MODELS[run.model], recipe, chips, chips, kind)
    recipe = TRILLIUM[run.model, chips]
    slice_ = min(chips, 256)
    if run.model in MIXTURES:
        return mixture_case(run, MIXTURES[run.model], recipe, chips, kind)
    return dense_case(run, MODELS[run.model], recipe, chips, slice_, kind)


def _excluded(run: Run, kind: str) -> str:
    if run.model.startswith("deepseek"):
        return "models/jax has latent attention and shared experts now; not captured for this page"
    if run.model.startswith("gemma"):
        return "blind/ expresses alternating attention windows; not captured for this page"
    if run.model == "gpt3-175b" and kind == "v5p":
        return "its script quantises to int8 (quantization=int8), which the row does not say"
    if run.source.startswith("MaxText tiering") and run.model == "llama3.1-405b":
        return "the page's chips per slice and batch are not published with the row"
    return ""


def dense_case(
    run: Run, model: Config, recipe: Recipe, chips: int, slice_: int, kind: str
) -> Case | NoCase:
    """A case of our JAX Llama.

    Args:
        run: what is published.
        model: its sizes; attention that calls a GPU's kernel is spelled out.
        recipe: how it is configured.
        chips: devices.
        slice_: of those, joined by the pod's own network.
        kind: of TPU: "v6e".
    """
    shared = recipe.tensor * recipe.context
    config = replace(
        model,
        # A device's share of the batch is that of its tensor-parallel group's ranks together.
        sequences=int(recipe.batch * shared),
        remat=recipe.remat,
        sequence_parallel=recipe.tensor > 1,
        mixer=attention if model.mixer is cudnn_attention else model.mixer,
    )
    replicas = max(recipe.replicas, chips // slice_)
    sizes = {"replica": replicas, "data": chips // replicas // shared}
    if recipe.context > 1:
        sizes["context"] = recipe.context
    if recipe.tensor > 1:
        sizes["model"] = recipe.tensor
    if replicas == 1:
        del sizes["replica"]
    tokens = int(recipe.batch * config.sequence)
    flops = maxtext_flops(
        layers=config.layers, width=config.width, heads=config.heads.queries,
        keys=config.heads.keys, size=config.heads.size, hidden=config.hidden,
        products=3 if config.gated else 2, vocabulary=config.vocabulary,
        sequence=config.sequence, sequences=recipe.batch,
    )  # fmt: skip
    measured = run.step_seconds(tokens, flops, _PEAK[kind])
    if measured is None:
        return NoCase("no figure that says how long a step took")
    split = " x ".join(f"{count} {axis}" for axis, count in sizes.items())

    def capture(_: int) -> Any:
        return training(config, mesh=tuple(sizes.values()), axes=tuple(sizes)).capture()

    return Case(
        run=run,
        measured=measured,
        system=f"tpu-{kind}-pod",
        accelerator=f"tpu-{kind}",
        key=f"maxtext-{config}-{sizes}",
        expressed=f"{split}, remat {recipe.remat}, splash attention",
        note=recipe.note,
        capture=capture,
        slice=slice_,
        attention="fused",
    )


def mixture_case(
    run: Run, model: moe.Config, recipe: Recipe, chips: int, kind: str
) -> Case | NoCase:
    """A case of our JAX mixture of experts; arguments as ``dense_case``'s."""
    config = replace(
        model,
        sequences=int(recipe.batch * recipe.tensor),
        remat=recipe.remat,
        mixer=attention if model.mixer is cudnn_attention else model.mixer,
    )
    groups = chips // recipe.experts // recipe.tensor
    sizes = {"replica": recipe.replicas} if recipe.replicas > 1 else {}
    sizes |= {"data": groups // recipe.replicas, "expert": recipe.experts}
    if recipe.tensor > 1:
        sizes["model"] = recipe.tensor
    split = " x ".join(f"{count} {axis}" for axis, count in sizes.items() if count > 1)
    measured = run.step_seconds(int(recipe.batch) * config.sequence)
    if measured is None:
        return NoCase("no figure that says how long a step took")

    def capture(_: int) -> Any:
        return moe.training(config, mesh=tuple(sizes.values()), axes=tuple(sizes)).capture()

    return Case(
        run=run,
        measured=measured,
        system=f"tpu-{kind}-pod",
        accelerator=f"tpu-{kind}",
        key=f"maxtext-{config}-{sizes}",
        expressed=f"{split}, remat {recipe.remat}, splash attention",
        note=f"{recipe.note}; places are filled by scatters",
        capture=capture,
        slice=chips,
        attention="fused",
    )
