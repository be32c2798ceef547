"""Other forms and meshes of the tiny Llama."""

from __future__ import annotations

from dataclasses import replace

from flint.models.jax.llama3 import TINY, training

unrolled = training(replace(TINY, scan=False), mesh=(4, 2))
no_remat = training(replace(TINY, remat="none"), mesh=(4, 2))
dots = training(replace(TINY, remat="dots"), mesh=(4, 2))
outputs = training(replace(TINY, remat="outputs"), mesh=(4, 2))
sequence_parallel = training(replace(TINY, sequence_parallel=True), mesh=(4, 2))
data_parallel = training(TINY, mesh=(8,), axes=("replica",))
hybrid = training(TINY, mesh=(2, 2, 2), axes=("replica", "data", "model"))
context = training(TINY, mesh=(2, 2, 2), axes=("data", "context", "model"))
four_axes = training(
    replace(TINY, sequence_parallel=True),
    mesh=(2, 2, 2, 2),
    axes=("replica", "data", "context", "model"),
)
#: TINY has 4 key heads: every one is on two parts.
shared_keys = training(TINY, mesh=(1, 8))
