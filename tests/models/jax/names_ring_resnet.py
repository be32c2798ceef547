"""Ring attention's and ResNet's tiny captures, which are run for real."""

from __future__ import annotations

from dataclasses import replace

from flint.models.jax import resnet, ring_attention

#: Rings of 4 and 8 devices have loops that one of 2 has not.
ring_of_4 = ring_attention.training(ring_attention.RING_TINY, mesh=(2, 4), axes=("data", "context"))
ring_of_8 = ring_attention.training(ring_attention.RING_TINY, mesh=(8,), axes=("context",))

#: Batch norm's statistics over all devices; and one where the batch is split over two axes.
resnet_synchronised = resnet.training(replace(resnet.TINY, together=None), mesh=(8,))
resnet_two_axes = resnet.training(resnet.TINY, mesh=(2, 4), axes=("replica", "data"))

MODELS = {
    "ring_attention": ("flint.models.jax.ring_attention", "train_tiny"),
    "ring_attention_of_4": ("tests.models.jax.names_ring_resnet", "ring_of_4"),
    "ring_attention_of_8": ("tests.models.jax.names_ring_resnet", "ring_of_8"),
    "resnet": ("flint.models.jax.resnet", "train_tiny"),
    "resnet_synchronised": ("tests.models.jax.names_ring_resnet", "resnet_synchronised"),
    "resnet_two_axes": ("tests.models.jax.names_ring_resnet", "resnet_two_axes"),
}
