"""Recipes of MaxText and MaxDiffusion on TPUs, as our JAX models.

The idea: sizes and batch are read from the row; what the backward pass keeps, and how the devices
of a recipe map to simulated chips, is in a table.  A model with two kinds of layers lies between
the model that has only the one and the model that has only the other (``expressed.py``).

    expressed(recipe)              # Expressed, or the reason why it is not

Longer than 300 lines because it is one table of recipes, with what each row leaves open.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from attending import attending
from cases_of_runs import Case, NoCase
from expressed import Expressed, Part, as_run, weighted
from jax_gpus import case_of_model as gpu_case
from maxtext import Recipe as How
from maxtext import dense_case, mixture_case
from narrow import SCALINGS, narrow
from recipes import Recipe

from flint.models.jax import moe
from flint.models.jax.layers import Heads, attend, attention, cudnn_attention, plain
from flint.models.jax.llama3 import Config
from flint.models.jax.moe_routing import Experts
from flint.models.jax.moe_sizes import SIZES
from flint.models.jax.sharding import constrain


def windowed(q: jax.Array, k: jax.Array, v: jax.Array, *, window: int) -> jax.Array:
    """Causal attention to the last ``window`` positions, in blocks as splash attention has them.

    A block of queries computes its own block of keys and the one before it.

    Args:
        q: (B, S, H, size).
        k, v: (B, S, K, size).
        window: divides S.
    """
    batch, length = q.shape[:2]
    if length <= window:
        return plain(q, k, v)

    def blocks(x: jax.Array) -> jax.Array:
        return x.reshape(batch * length // window, window, *x.shape[2:])

    def with_earlier(x: jax.Array) -> jax.Array:
        earlier = jnp.pad(x, ((0, 0), (window, 0), (0, 0), (0, 0)))[:, :length]
        return jnp.concatenate([blocks(earlier), blocks(x)], axis=1)

    rows, columns = jnp.arange(window)[:, None] + window, jnp.arange(2 * window)[None]
    visible = (columns <= rows) & (columns > rows - window)
    mixed = attend(blocks(q), with_earlier(k), with_earlier(v), visible)
    return mixed.reshape(batch, length, -1)


def balanced(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """As much work as causal attention of a split sequence whose parts are balanced: half of it."""
    half = k.shape[1] // 2
    visible = jnp.ones((q.shape[1], half), bool)
    return attend(q, k[:, :half], v[:, :half], visible)


def everywhere(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Attention without a mask."""
    return attend(q, k, v, jnp.ones((q.shape[1], k.shape[1]), bool))


def crossing(
    x: jax.Array, layer: Any, heads: Heads, positions: jax.Array, *, text: int
) -> jax.Array:
    """Self-attention without a mask, and attention to ``text`` tokens with the same weights."""
    mixed = attention(x, layer, heads, positions, kernel=everywhere)
    batch, _, width = x.shape
    with jax.named_scope("cross"):
        words = constrain(jnp.zeros((batch, text, width), x.dtype), "batch", None, None)
        q, k, v = (
            (given @ layer[name].astype(x.dtype)).reshape(batch, -1, heads.keys, heads.size)
            for given, name in ((x, "wq"), (words, "wk"), (words, "wv"))
        )
        found = constrain(everywhere(q, k, v), "batch", "sequence", "tensor")
        return mixed + found @ layer["wo"].astype(x.dtype)


@dataclass(frozen=True, slots=True)
class Layers:
    """One of a model's kinds of layers.

    Attributes:
        count: of them.
        heads: sizes of their attention.
        window: that they attend to; 0: all before.
    """

    count: int
    heads: Heads
    window: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """How a row is run.

    Attributes:
        remat: our policy.
        differs: what differs from the published run.
        context: chips that a sequence is split over.
        slice: chips of a slice; 0: all.
        experts: ranks of expert parallelism.
        tensor: ranks of tensor parallelism.
        scaling: of the products, where they are narrow.
        memory: whether what is kept is kept as published.
        accumulated: batches of a step.
        attention: share of the peak that its kernel reaches, if that is not the system's.
    """

    remat: str
    differs: str = ""
    context: int = 1
    slice: int = 0
    experts: int = 1
    tensor: int = 1
    scaling: str = ""
    memory: bool = True
    accumulated: int = 1
    attention: float = 0.0


_ADAM = "AdamW, not Adafactor; f32 weights"
_QWIX = "casts as narrow.py says"
_MOMENT = "first moment f32, not bf16"
_MIXTURE = "no norm of queries and keys"
_GPT_OSS = "no sinks, no biases"
_SHARED = "as the row says"
_GEMMA = "global heads of 256, twice as many; loss not in tiles"
_TIED = "embedding and head are two matrices"
#: Share of the peak of JAX's first Pallas kernel, which AXLearn called until October 2024 (its pull
#: request 722): from 40 to 140 heads, attention and its gradients take 16.6 ms more on a TPU v4
#: (tpu_attention_benchmark.py: two sequences of 2,048, heads of 128, blocks of 512, with a bias).
_FIRST_KERNEL = 0.206
_WAN = "cross attention with the weights of self-attention; no modulation, f32 weights"
#: Row -> how it is run.
ENTRIES: Mapping[str, Entry] = {
    "iw-llama70-64-fp8": Entry("context", f"{_QWIX}; {_MOMENT}", scaling="static"),
    "iw-llama70-256-fp8": Entry("context", f"{_QWIX}; {_MOMENT}", scaling="static"),
    "iw-llama405-256-fp8": Entry("offloaded", f"{_QWIX}; {_MOMENT}", scaling="static"),
    "iw-llama70-256-128k-fp8": Entry(
        "context", f"{_QWIX}; half of the keys for every query, as a balanced split has in the "
        "mean; parameters split over 64 chips; loss not in tiles", context=4, scaling="static",
        memory=False,
    ),
    "iw-gemma4-31b-64": Entry(
        "outputs", "global heads of 256, twice as many; embedding and head are two matrices; loss "
        "not in tiles", memory=False,
    ),
    "v6e-gemma3-12b-1024": Entry(
        "full", "embedding and head are two matrices; loss not in tiles", slice=256, memory=False,
    ),
    "v6e-gpt3-int8-256": Entry("full", f"{_QWIX}; all products int8", scaling="int8"),
    "iw-gptoss120-64": Entry("offloaded outputs", _GPT_OSS),
    "iw-gptoss120-256": Entry("offloaded outputs", _GPT_OSS),
    "iw-qwen235-256-bf16": Entry("offloaded", _MIXTURE),
    "iw-qwen235-256-fp8": Entry("offloaded", f"{_MIXTURE}; {_QWIX}", scaling="static"),
    "v5p-mixtral7b-128": Entry("full", "f32 weights", memory=False),
    "iw-dsv3-128-bf16": Entry("offloaded", _MOMENT),
    "iw-dsv3-256-bf16": Entry("offloaded", _MOMENT),
    "iw-dsv3-128-fp8": Entry("offloaded", f"{_MOMENT}; {_QWIX}", scaling="static"),
    "iw-dsv3-256-fp8": Entry("offloaded", f"{_MOMENT}; {_QWIX}", scaling="static"),
    "iw-gemma4-26b-64": Entry("offloaded", _GEMMA, memory=False),
    "iw-gemma4-26b-256": Entry("full", _GEMMA, memory=False),
    "v5p-maverick-128": Entry("offloaded attention", _SHARED, tensor=4, memory=False),
    "v5p-scout": Entry("offloaded", _SHARED, memory=False),
    "iw-wan21-64": Entry("full", _WAN, context=2, memory=False),
    "v5p-wan21-4": Entry("full", _WAN, context=4, memory=False),
    "v5p-flux-4": Entry(
        "none", "one stream of blocks with as many FLOPs; no modulation, f32 weights; remat is "
        "not published", memory=False,
    ),
    "px-llama31-405b-v6e-512": Entry("full", _ADAM, slice=256, tensor=4, memory=False),
    **dict.fromkeys(
        (f"px-{row}" for row in ("llama3-8b-v6e-256", "llama3-70b-v6e-256", "mixtral-v6e-256",
        "mixtral-v5p-128")), Entry("full", _ADAM, memory=False),
    ),
    "ax-7b1-v4-512": Entry("attention", _TIED, memory=False),
    "ax-7b1-v5e-1024": Entry("attention", _TIED, slice=256, memory=False),
    "ax-7b1-v5p-256": Entry("attention", _TIED, memory=False),
    "ax-7b2-v5e-1024": Entry("dots", _TIED, slice=256, memory=False, attention=_FIRST_KERNEL),
    "ax-70b2-v6e-1024": Entry("offloaded attention", slice=256),
    "ax-70b2-v6e-256": Entry(
        "offloaded attention", "four steps of a quarter: the optimizer counts four times",
        accumulated=4, memory=False,
    ),
    **dict.fromkeys(
        (f"ax-hc3b-v5p-{chips}" for chips in (512, 1024, 2048)),
        Entry("dots", f"{_TIED}; {_MIXTURE}", memory=False, attention=_FIRST_KERNEL),
    ),
    "tp-8b-v6e-256": Entry("offloaded", _ADAM, memory=False),
    "tp-70b-v6e-256": Entry("offloaded", _ADAM, memory=False),
    "tp-405b-v6e-256": Entry("offloaded", _ADAM, tensor=4, memory=False),
    "tp-405b-v6e-512": Entry(
        "offloaded", f"{_ADAM}; slices are replicas", slice=256, tensor=4, memory=False
    ),
    "mt-dsv2lite-v5p-4": Entry("full", "", memory=False),
    "mt-900b-v6e-256": Entry("offloaded attention", "AdamW, f32 weights", tensor=16, memory=False),
    **dict.fromkeys(
        ("v6e-moe700b-init", "v6e-moe700b-final", "mt-moe700b-exp-v6e-256"),
        Entry("offloaded attention", "AdamW, f32 weights", experts=16, memory=False),
    ),
    "mt-8b-v6e-64": Entry("offloaded attention"),
}  # fmt: skip
#: Why other rows are not expressed, by the beginning of their ids.
REASONS: Mapping[str, str] = {
    "iw-gemma4-2b": "embeddings per layer and shared keys: no such model here",
    "iw-gemma4-4b": "embeddings per layer and shared keys: no such model here",
}
KINDS: Mapping[str, str] = {
    "TPU v7x (Ironwood)": "v7x", "TPU v6e": "v6e", "TPU v5p": "v5p", "TPU v5e": "v5e",
    "TPU v4": "v4",
}  # fmt: skip
#: Rows on GPUs -> what is kept for the backward pass, whether attention is cuDNN's kernel.
ON_GPUS: Mapping[str, tuple[str, bool]] = {
    "jt-llama2-7b-h100-8": ("dots", True),
    "ax-7b1-h100-256": ("attention", False),
    "ax-7b1-h100-512": ("attention", False),
    "ax-7b2-h100-256": ("attention", True),
    "ax-70b2-h100-512": ("attention", False),
    **dict.fromkeys(
        (f"dgxc-70b-fp8-{devices}" for devices in (64, 128, 256, 512, 1024, 2048)),
        ("projections", True),
    ),
}


def expressed(recipe: Recipe) -> Expressed | NoCase:
    """A recipe as a JAX model, or the reason why it is not expressed."""
    if recipe.id in ON_GPUS:
        return _on_gpus(recipe)
    entry = ENTRIES.get(recipe.id)
    if entry is None:
        return NoCase(next(text for key, text in REASONS.items() if recipe.id.startswith(key)))
    part = replace(recipe, batch=recipe.batch // entry.accumulated)
    found = [
        (weight * entry.accumulated, _case(part, entry, *what)) for weight, *what in _sum(recipe)
    ]
    for _, case in found:
        if isinstance(case, NoCase):
            return case
    parts = tuple(Part(weight, case) for weight, case in found if isinstance(case, Case))
    if entry.attention:
        parts = weighted(parts, 1.0, attending(entry.attention))
    if entry.scaling:
        vocabulary = recipe.sizes["vocabulary"]
        parts = weighted(parts, 1.0, narrow(SCALINGS[entry.scaling], wide=(vocabulary,)))
    differs = f"{parts[0].case.expressed}; {entry.differs}".removesuffix("; ")
    if entry.attention:
        differs = differs.replace("splash attention", "JAX's first Pallas kernel of attention")
    return Expressed(parts, recipe.batch, differs, entry.memory)


def _on_gpus(recipe: Recipe) -> Expressed | NoCase:
    """Llama of MaxText and AXLearn on GPUs."""
    sizes, split = recipe.sizes, recipe.parallelism
    remat, kernel = ON_GPUS[recipe.id]
    heads = Heads(queries=sizes["heads"], keys=sizes["kv_heads"], size=sizes["head_dim"])
    model = Config(
        layers=sizes["layers"], width=sizes["hidden"], heads=heads, hidden=sizes["ffn"],
        vocabulary=sizes["vocabulary"], scan=recipe.id.startswith(("ax-", "dgxc-")),
        mixer=cudnn_attention if kernel else attention,
    )  # fmt: skip
    run = as_run(recipe, each=recipe.batch // recipe.devices)
    shards = split.get("fsdp", recipe.devices)
    case = gpu_case(run, model, remat, {"data": shards}, recipe.devices)
    if isinstance(case, NoCase):
        return case
    if kernel:
        differs = f"{case.expressed}; attention is computed again"
    else:
        differs = case.expressed.replace("cuDNN's attention", "attention as XLA runs it")
    parts: tuple[Part, ...] = (Part(1.0, case),)
    if recipe.compute.startswith("fp8"):
        kernels = narrow(SCALINGS["delayed_xla"], wide=(sizes["vocabulary"],))
        parts, differs = weighted(parts, 1.0, kernels), f"{differs}; casts as narrow.py says"
    return Expressed(parts, recipe.batch, differs, memory=False)


def _sum(recipe: Recipe) -> Iterator[tuple[float, Layers]]:
    """Weight and layers of models that add up to a recipe's."""
    count = layers_in(recipe.sizes)
    return ((kind.count / count, kind) for kind in layers_of(recipe))


def layers_in(sizes: Mapping[str, Any]) -> int:
    """How many blocks a model has."""
    blocks = sizes.get("double_blocks", 0) + sizes.get("single_blocks", 0)
    return int(sizes.get("layers", blocks))


def layers_of(recipe: Recipe) -> tuple[Layers, ...]:
    """A model's kinds of layers."""
    sizes = recipe.sizes
    queries, size = sizes["heads"], sizes.get("head_dim", 128)
    heads = Heads(queries=queries, keys=sizes.get("kv_heads", queries), size=size)
    window, count = sizes.get("sliding_window", 0), layers_in(sizes)
    if not window:
        return (Layers(count, heads),)
    every = sizes.get("sliding_every", 1 + sizes.get("local_per_global", 5))
    rest = count // every
    wide = sizes.get("global_head_dim", size) // size  # the fused kernels take heads of 256
    keys = sizes.get("global_kv_heads", sizes["kv_heads"])
    whole = Heads(queries=queries * wide, keys=keys * wide, size=size)
    return Layers(count - rest, heads, window), Layers(rest, whole)


def _mixer(recipe: Recipe, entry: Entry, layers: Layers) -> Any:
    """Self-attention, as ``llama3.Config`` wants it."""
    text = recipe.sizes.get("text_length")
    if text:
        return functools.partial(crossing, text=text)
    if "image_tokens" in recipe.sizes:
        return functools.partial(attention, kernel=everywhere)
    if entry.context > 1:
        return functools.partial(attention, kernel=balanced)
    if layers.window:
        kernel = functools.partial(windowed, window=layers.window)
        return functools.partial(attention, kernel=kernel)
    return attention


def _case(recipe: Recipe, entry: Entry, layers: Layers) -> Case | NoCase:
    sizes, kind = recipe.sizes, KINDS[recipe.accelerator]
    mixer = _mixer(recipe, entry, layers)
    batch = recipe.batch / recipe.devices
    # Where the sequence is split too, parameters are split over what is left.
    replicas = recipe.parallelism.get("dp", 1) if entry.context == 1 else 1
    how = How(
        batch,
        entry.remat,
        entry.tensor,
        experts=entry.experts,
        context=entry.context,
        replicas=replicas,
    )
    if "experts" in sizes:
        model = _mixture(recipe, layers, mixer)
        return mixture_case(as_run(recipe), model, how, recipe.devices, kind)
    dense = Config(
        layers=layers_in(sizes), width=sizes["hidden"], heads=layers.heads,
        hidden=sizes.get("ffn", 4 * sizes["hidden"]),
        vocabulary=sizes.get("vocabulary", 64), sequence=recipe.sequence, mixer=mixer,
        gated="learned_positions" not in sizes and recipe.kind != "vision",
    )  # fmt: skip
    slice_ = entry.slice or recipe.devices
    case = dense_case(as_run(recipe), dense, how, recipe.devices, slice_, kind)
    if isinstance(case, NoCase) or not recipe.attention.startswith("plain"):
        return case
    differs = case.expressed.replace("splash attention", "attention as XLA runs it")
    return replace(case, attention="as-written", expressed=differs)


def _mixture(recipe: Recipe, layers: Layers, mixer: Any) -> moe.Config:
    """A mixture of experts; dropless unless the row states a capacity."""
    sizes = recipe.sizes
    if sizes.get("attention") == "MLA":
        model = SIZES["deepseek-v3" if sizes["q_lora"] else "deepseek-v2-lite"]
        assert model.form is not None
        form = replace(model.form, fused=False)
        return replace(model, form=form, sequence=recipe.sequence)
    shared = sizes.get("shared_experts", 0) * sizes["expert_ffn"]
    every = sizes.get("moe_every", 1)
    if shared and "dense_ffn" in sizes and every == 1:
        shared = sizes["dense_ffn"]  # Gemma's, which every token goes through
    dropped = "capacity_factor" in sizes
    return moe.Config(
        layers=sizes["layers"],
        width=sizes["hidden"],
        heads=layers.heads,
        hidden=sizes.get("dense_ffn", 0),
        period=(moe.Layer(sparse=False),) * (every - 1) + (moe.Layer(),),
        experts=Experts(
            count=sizes["experts"],
            chosen=sizes["top_k"],
            hidden=sizes["expert_ffn"],
            capacity_factor=sizes.get("capacity_factor", 1.0),
            shared=shared,
            room=0.0 if dropped else 1.0,
        ),
        dispatch="einsum" if dropped else "ragged",
        balance=0.0,
        vocabulary=sizes["vocabulary"],
        sequence=recipe.sequence,
        mixer=mixer,
    )
