"""Recipes of MaxText and MaxDiffusion on TPUs, as our JAX models.

The idea: sizes and batch are read from the row; what the backward pass keeps, and how the devices
of a recipe map to simulated chips, is in ``jax_entries.py``.  A model with two kinds of layers lies
between the model that has only the one and the model that has only the other (``expressed.py``).

    expressed(recipe)              # Expressed, or the reason why it is not
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import levanter_rows
import tied_rows
from attending import attending
from cases_of_runs import Case, NoCase
from expressed import Expressed, Part, as_run, weighted
from jax_entries import ENTRIES, GPUS, KINDS, ON_GPUS, REASONS, Entry
from jax_gpus import case_of_model as gpu_case
from maxtext import Recipe as How
from maxtext import dense_case, mixture_case
from narrow import narrow
from normed import attends, normed_after
from recipes import Recipe
from scalings import SCALINGS
from trainers import first

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


def expressed(recipe: Recipe) -> Expressed | NoCase:
    """A recipe as a JAX model, or the reason why it is not expressed."""
    if recipe.id.startswith("mx-"):
        return tied_rows.expressed(recipe)
    if recipe.id.startswith("mar-") and "experts" not in recipe.sizes:
        return levanter_rows.expressed(recipe)
    if recipe.id in ON_GPUS:
        return _on_gpus(recipe)
    entry = ENTRIES.get(recipe.id)
    if entry is None:
        return NoCase(first(REASONS, recipe.id))
    part = replace(recipe, batch=recipe.batch // entry.accumulated)
    found = [
        (weight * entry.accumulated, _case(part, entry, *what))
        for weight, *what in _sum(recipe, entry)
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
    system, accelerator = first(GPUS, recipe.accelerator)
    case = replace(case, system=system, accelerator=accelerator)
    if kernel:
        differs = f"{case.expressed}; attention is computed again"
    else:
        differs = case.expressed.replace("cuDNN's attention", "attention as XLA runs it")
    parts: tuple[Part, ...] = (Part(1.0, case),)
    if recipe.compute.startswith("fp8"):
        kernels = narrow(SCALINGS["delayed_xla"], wide=(sizes["vocabulary"],))
        parts, differs = weighted(parts, 1.0, kernels), f"{differs}; casts as narrow.py says"
    return Expressed(parts, recipe.batch, differs, memory=False)


#: Products of attention that run forward, twice with activations computed again, and backward.
_PRODUCTS = (4, 5)


def _sum(recipe: Recipe, entry: Entry) -> Iterator[tuple[float, Layers]]:
    """Weight and layers of models that add up to a recipe's.

    A kernel computes whole blocks that a window touches, which may differ in both passes.
    """
    count = layers_in(recipe.sizes)
    for kind in layers_of(recipe):
        share = kind.count / count
        if not kind.window or not any(entry.blocks):
            yield share, kind
            continue
        for products, block in zip(_PRODUCTS, entry.blocks, strict=True):
            weight = share * products / sum(_PRODUCTS)
            yield weight, replace(kind, window=max(kind.window, block))


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
    attention_of = attends(recipe)
    if entry.context > 1:
        return functools.partial(attention_of, kernel=balanced)
    if layers.window:
        kernel = functools.partial(windowed, window=layers.window)
        return functools.partial(attention_of, kernel=kernel)
    return attention_of


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
        model = _mixture(recipe, layers, mixer, entry)
        return mixture_case(as_run(recipe), model, how, recipe.devices, kind)
    dense = Config(
        layers=layers_in(sizes), width=sizes["hidden"], heads=layers.heads,
        hidden=sizes.get("ffn", 4 * sizes["hidden"]),
        vocabulary=sizes.get("vocabulary", 64), sequence=recipe.sequence, mixer=mixer,
        gated="learned_positions" not in sizes and recipe.kind != "vision",
        normed_after=normed_after(recipe), tiles=recipe.tiles,
    )  # fmt: skip
    slice_ = entry.slice or recipe.devices
    case = dense_case(as_run(recipe), dense, how, recipe.devices, slice_, kind)
    if isinstance(case, NoCase) or not recipe.attention.startswith("plain"):
        return case
    differs = case.expressed.replace("splash attention", "attention as XLA runs it")
    return replace(case, attention="as-written", expressed=differs)


def _mixture(recipe: Recipe, layers: Layers, mixer: Any, entry: Entry) -> moe.Config:
    """A mixture of experts; dropless unless the row states a capacity."""
    sizes = recipe.sizes
    dropless = "permuted" if recipe.framework.startswith("MaxText") else "ragged"
    dropless = dropless if entry.experts == 1 else "ragged"
    if sizes.get("attention") == "MLA":
        model = SIZES["deepseek-v3" if sizes["q_lora"] else "deepseek-v2-lite"]
        assert model.form is not None
        form = replace(model.form, fused=False)
        return replace(model, form=form, sequence=recipe.sequence, dispatch=dropless)
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
            biases=entry.biases,
        ),
        dispatch="einsum" if dropped else dropless,
        balance=0.0,
        vocabulary=sizes["vocabulary"],
        sequence=recipe.sequence,
        mixer=mixer,
        normed_after=normed_after(recipe),
    )
