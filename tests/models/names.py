"""Every tiny model that is run for real, and where its capture is."""

from __future__ import annotations

MODELS = {
    "llama3": ("flint.models.jax.llama3", "train_tiny"),
}
