"""Pipelines' tiny captures, which are run for real.

Two layers per stage: XLA's CPU backend drops a loop over one, and then gathers weights, which are
the same in all ticks, once before the ticks.  A small vocabulary: XLA adds FLOPs up in float32,
which is exact to 2^24 of them.
"""

from __future__ import annotations

from dataclasses import replace

from flint.models.jax.pipeline import PIPELINE_TINY, training

_SMALL = replace(PIPELINE_TINY, vocabulary=128)
EIGHT_LAYERS = replace(_SMALL, layers=8)

stage_only = training(EIGHT_LAYERS, 8, mesh=(4,), axes=("stage",))
stage_data = training(EIGHT_LAYERS, 4, mesh=(4, 2), axes=("stage", "data"))
stage_replica = training(_SMALL, 4, mesh=(2, 4), axes=("stage", "replica"))
stage_model = training(
    replace(_SMALL, sequence_parallel=True, remat="dots"), 2, mesh=(2, 4), axes=("stage", "model")
)
unrolled = training(replace(_SMALL, scan=False, remat="none"), 4, mesh=(2, 1, 4))

MODELS = {
    "pipeline": ("flint.models.jax.pipeline", "train_tiny"),
    **{
        f"pipeline_{name}": ("tests.models.jax.names_pipeline", name)
        for name in ("stage_only", "stage_data", "stage_replica", "stage_model", "unrolled")
    },
}
