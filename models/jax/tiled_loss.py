"""The loss of one part of a device's tokens after another, so that few scores exist at a time.

The idea: with a large vocabulary, scores take more memory than all activations.  Those of a tile of
tokens are computed, summed up into a loss and forgotten; the backward pass computes them again.
This is MaxText's ``num_vocab_tiling`` (its utils/vocabulary_tiling.py).

    loss = tiled_cross_entropy(params, x, labels, tiles=8)

The head's weights are gathered once for all tiles, and their gradient is summed up over tiles
before it is over devices.  Written for all devices together, XLA's partitioner would reduce every
tile's; the compiler of TPUs moves that out of the loop.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from flint.models.jax.layers import cross_entropy, rms_norm
from flint.models.jax.sharding import AXES, constrain, spec


def _in_tiles(head: jax.Array, norm: jax.Array, x: jax.Array, labels: jax.Array, tiles: int) -> Any:
    """Mean cross entropy of ``x`` (B, S, D), one tile after another."""

    @jax.checkpoint
    def of_tile(total: jax.Array, tile: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        x, labels = tile
        scores = constrain(rms_norm(x, norm) @ head, None, None, "tensor")
        return total + cross_entropy(scores.astype(jnp.float32), labels), None

    def tiled(y: jax.Array) -> jax.Array:
        return y.reshape(tiles, 1, -1, *y.shape[2:])

    total, _ = jax.lax.scan(of_tile, jnp.zeros(()), (tiled(x), tiled(labels)))
    return total / tiles


def tiled_cross_entropy(params: Any, x: jax.Array, labels: jax.Array, tiles: int) -> jax.Array:
    """Mean cross entropy of the next token.

    Args:
        params: ``norm`` (D) and ``head`` (D, V) of ``layers.vocabulary_parameters``.
        x: (B, S, D), after all blocks.
        labels: (B, S) of int32.
        tiles: of a device's tokens; divides their number.
    """
    mesh = jax.sharding.get_abstract_mesh()
    axes = {axis for dim in ("batch", "sequence") for axis in AXES[dim]} & set(mesh.axis_names)
    shards = tuple(axis for axis in AXES["fsdp"] if axis in axes)

    def on_device(head: jax.Array, norm: jax.Array, x: jax.Array, labels: jax.Array) -> jax.Array:
        whole = head.astype(x.dtype)
        if shards:
            whole = jax.lax.all_gather(whole, shards, axis=0, tiled=True)
        return _in_tiles(whole, norm, x, labels, tiles).reshape(1, 1)

    with jax.named_scope("head"):
        if not axes:
            return on_device(params["head"], params["norm"], x, labels)[0, 0]
        tokens = spec(("batch", "sequence"), mesh)
        split = (spec(("fsdp", None), mesh), spec((None,), mesh), tokens, tokens)
        found = jax.shard_map(
            on_device, in_specs=split, out_specs=tokens, axis_names=axes, check_vma=False
        )
        return found(params["head"], params["norm"], x, labels).mean()
