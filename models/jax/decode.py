"""Inference: one token for each sequence of a batch, with a sharded cache of keys and values.

The idea: weights are tensor parallel and the same on every data rank; the cache is split by
sequence over the data axes and by key head over the tensor axis, so that attention reads it where
it is, and each step writes one token of each sequence into it in place.  Every sequence has a
position of its own (continuous batching).  The step is captured at one cache length, and the
positions do not change it.

    flint capture models/jax/decode.py:decode_8b --mesh 4,8 -o out/
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

import flint
from flint.models.jax import llama3
from flint.models.jax.layers import attend, projections, rms_norm, swiglu
from flint.models.jax.parameters import Parameter, Tree, abstract, stacked, tree_map
from flint.models.jax.sharding import constrain, parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """A model as it is served.

    Attributes:
        model: its sizes.
        length: tokens for which a sequence has room in the cache.
        sequences: sequences per part of the batch dim (per data-parallel rank).
    """

    model: llama3.Config
    length: int
    sequences: int


def weights(serving: Serving) -> Tree:
    """The model's parameters in its dtype, split over the tensor axis only."""

    def served(p: Parameter) -> Parameter:
        dims = tuple(None if dim == "fsdp" else dim for dim in p.dims)
        return replace(p, dims=dims, dtype=serving.model.dtype)

    return tree_map(served, llama3.parameters(replace(serving.model, scan=True)))


def cache(serving: Serving, batch: int) -> Tree:
    """Keys and values (layers, B, T, K, size) of ``batch`` sequences."""
    model = serving.model
    shape = (batch, serving.length, model.heads.keys, model.heads.size)
    one = Parameter(shape, ("batch", None, "tensor", None), scale=0.0, dtype=model.dtype)
    return stacked({"keys": one, "values": one}, model.layers)


def write(cache: jax.Array, new: jax.Array, layer: jax.Array, positions: jax.Array) -> jax.Array:
    """``cache`` (layers, B, T, K, size) with ``new`` (B, 1, K, size) in it.

    Args:
        cache: of all layers.
        new: keys or values of one token of each sequence.
        layer: which layer they are of.
        positions: where each sequence has its token, (B,).
    """
    places = jnp.stack([jnp.broadcast_to(layer, positions.shape), positions], axis=1)
    # The sequences are a batch dim, not an index, so that each rank writes only its own.
    dims = jax.lax.ScatterDimensionNumbers(
        update_window_dims=(1, 2),
        inserted_window_dims=(0, 2),
        scatter_dims_to_operand_dims=(0, 2),
        operand_batching_dims=(1,),
        scatter_indices_batching_dims=(0,),
    )
    return jax.lax.scatter(cache, places, new[:, 0], dims, unique_indices=True)


def block(
    config: llama3.Config, x: jax.Array, layer: Any, kept: Any, number: jax.Array,
    positions: jax.Array,
) -> tuple[jax.Array, Any]:  # fmt: skip
    """One block for one token per sequence: ``x`` (B, 1, D), and the cache of all layers."""
    with jax.named_scope("attention"):
        h = rms_norm(x, layer["attention_norm"])
        q, k, v = projections(h, layer["attention"], config.heads, positions[:, None])
        with jax.named_scope("cache"):
            kept = {
                "keys": write(kept["keys"], k, number, positions),
                "values": write(kept["values"], v, number, positions),
            }
        length = kept["keys"].shape[2]
        visible = jnp.arange(length, dtype=jnp.int32)[None, None] <= positions[:, None, None]
        mixed = attend(q, kept["keys"][number], kept["values"][number], visible)
        x = constrain(x + mixed @ layer["attention"]["wo"], "batch", None, None)
    x = x + swiglu(rms_norm(x, layer["mlp_norm"]), layer["mlp"])
    return constrain(x, "batch", None, None), kept


def logits(
    config: llama3.Config, params: Any, cache: Any, tokens: jax.Array, positions: jax.Array
) -> tuple[jax.Array, Any]:
    """Scores (B, V) of what follows ``tokens`` (B,) at ``positions`` (B,), and the new cache.

    The cache is carried from layer to layer, and each writes its token into it in place.  If a
    layer took its part of the cache and returned it, every step would copy the whole cache.
    """
    with jax.named_scope("embedding"):
        x = constrain(params["embedding"][tokens][:, None], "batch", None, None)

    def layer(state: tuple[jax.Array, Any], one: Any) -> tuple[Any, None]:
        weights, number = one
        return block(config, state[0], weights, state[1], number, positions), None

    with jax.named_scope("blocks"):
        numbers = jnp.arange(config.layers, dtype=jnp.int32)
        (x, cache), _ = jax.lax.scan(layer, (x, cache), (params["blocks"], numbers))
    with jax.named_scope("head"):
        scores = rms_norm(x, params["norm"])[:, 0] @ params["head"]
        return constrain(scores.astype(jnp.float32), "batch", "tensor"), cache


def abstract_arguments(serving: Serving, mesh: Any) -> tuple[Any, Any, Any]:
    """Weights, cache and batch (each sequence's last token and its position) over a mesh."""
    batch = serving.sequences * parts("batch", mesh)
    ids = Parameter((batch,), ("batch",), scale=0.0, dtype=jnp.int32)
    return (
        abstract(weights(serving), mesh),
        abstract(cache(serving, batch), mesh),
        abstract({"tokens": ids, "positions": ids}, mesh),
    )


def decoding(
    serving: Serving, mesh: tuple[int, ...], axes: tuple[str, ...] = ("data", "model")
) -> Any:
    """A decode step: ``step(params, cache, batch) -> (next tokens, cache)``, the cache donated.

    Args:
        serving: the model and its cache.
        mesh: devices per axis.
        axes: their names, out of ``sharding.AXES``.
    """

    @flint.capture(mesh=mesh, axes=axes, setup=functools.partial(abstract_arguments, serving))
    @functools.partial(jax.jit, donate_argnums=1)
    def decode_step(params: Any, cache: Any, batch: Any) -> tuple[jax.Array, Any]:
        scores, cache = logits(serving.model, params, cache, batch["tokens"], batch["positions"])
        with jax.named_scope("sampling"):
            return jnp.argmax(scores, -1).astype(jnp.int32), cache

    return decode_step


decode_tiny = decoding(Serving(model=llama3.TINY, length=32, sequences=2), mesh=(4, 2))
decode_8b = decoding(Serving(model=llama3.LLAMA3_8B, length=8192, sequences=32), mesh=(4, 8))
decode_405b = decoding(Serving(model=llama3.LLAMA3_405B, length=8192, sequences=64), mesh=(4, 8))
