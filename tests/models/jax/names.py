"""Every tiny model that is run for real, and where its capture is."""

from __future__ import annotations

from tests.models.jax import names_moe, names_pipeline, names_ring_resnet

MODELS = {
    **names_moe.MODELS,
    **names_ring_resnet.MODELS,
    **names_pipeline.MODELS,
    "llama3": ("flint.models.jax.llama3", "train_tiny"),
    "decode": ("flint.models.jax.decode", "decode_tiny"),
    **{
        f"llama3_{name}": ("tests.models.jax.variants", name)
        for name in (
            "unrolled", "no_remat", "dots", "outputs", "sequence_parallel", "data_parallel",
            "hybrid", "context", "four_axes", "shared_keys",
        )
    },
}  # fmt: skip
