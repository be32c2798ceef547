"""Ring attention's and ResNet's tiny captures, which are run for real."""

from __future__ import annotations

from flint.models.jax.ring_attention import RING_TINY, training

#: Rings of 4 and 8 devices have loops that one of 2 has not.
ring_of_4 = training(RING_TINY, mesh=(2, 4), axes=("data", "context"))
ring_of_8 = training(RING_TINY, mesh=(8,), axes=("context",))

MODELS = {
    "ring_attention": ("flint.models.jax.ring_attention", "train_tiny"),
    "ring_attention_of_4": ("tests.models.names_ring_resnet", "ring_of_4"),
    "ring_attention_of_8": ("tests.models.names_ring_resnet", "ring_of_8"),
}
