"""Prints, as JSON, what a tiny Llama decodes token by token, on one device and on 4x2, and what the
training model's forward pass says of the same tokens."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from flint.models.jax import decode, llama3
from flint.models.jax.parameters import initial

MODEL = replace(llama3.TINY, dtype=jnp.float32)
LENGTH, SEQUENCES = 12, 8


def decoded(params, tokens, shape):
    """Scores (B, T, V), one token at a time; sequence b begins b % 3 tokens late."""
    serving = decode.Serving(model=MODEL, length=LENGTH, sequences=SEQUENCES // shape[0])
    mesh = jax.make_mesh(shape, ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    late = np.arange(SEQUENCES) % 3
    with jax.set_mesh(mesh):
        placed = jax.tree.map(lambda s: s.sharding, decode.abstract_arguments(serving, mesh))
        cache = initial(decode.cache(serving, SEQUENCES), jax.random.key(5))
        params, cache = jax.device_put((params, cache), placed[:2])
        step = jax.jit(lambda *args: decode.logits(MODEL, *args))
        scores = np.zeros((SEQUENCES, LENGTH, MODEL.vocabulary), np.float32)
        for time in range(LENGTH + 2):
            positions = np.clip(time - late, 0, LENGTH - 1).astype(np.int32)
            now = np.take_along_axis(tokens, positions[:, None], 1)[:, 0]
            batch = jax.device_put((now, positions), tuple(placed[2].values()))
            found, cache = jax.block_until_ready(step(params, cache, *batch))
            scores[np.arange(SEQUENCES), positions] = np.asarray(found)
    return scores


def cache_copies():
    """How many instructions of the compiled step copy all keys or all values."""
    serving = decode.Serving(model=MODEL, length=LENGTH, sequences=SEQUENCES)
    mesh = jax.make_mesh((1, 1), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    with jax.set_mesh(mesh):
        arguments = decode.abstract_arguments(serving, mesh)
        text = decode.decoding(serving, (1, 1)).lower(*arguments).compile().as_text()
    shape = re.escape(f"f32{list(arguments[1]['keys'].shape)}".replace(" ", ""))
    assert re.search(rf"= {shape}\S* fusion\(", text)
    return len(re.findall(rf"= {shape}\S* copy\(", text))


MESHES = {"one device": (1, 1), "4x2": (4, 2)}


if __name__ == "__main__":
    params = initial(llama3.parameters(MODEL), jax.random.key(0))
    tokens = np.asarray(jax.random.randint(jax.random.key(2), (SEQUENCES, LENGTH), 0, 256))
    forward = np.asarray(llama3.logits(MODEL, params, jnp.asarray(tokens)))
    print(
        json.dumps(
            {
                "copies": cache_copies(),
                "scale": float(np.abs(forward).max()),
                **{
                    name: float(np.abs(decoded(params, tokens, MESHES[name]) - forward).max())
                    for name in sys.argv[1:]
                },
            }
        )
    )
