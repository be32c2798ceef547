"""The mixture of experts' tiny captures, which are run for real."""

from __future__ import annotations

from dataclasses import replace

from flint.models.jax.moe import TINY, training

EINSUM = replace(TINY, dispatch="einsum")
THREE = {"mesh": (2, 2, 2), "axes": ("data", "expert", "model")}
FOUR = {"mesh": (2, 2, 2, 2), "axes": ("replica", "data", "expert", "model")}

three_axes = training(TINY, **THREE)
three_axes_einsum = training(EINSUM, **THREE)
four_axes = training(TINY, **FOUR)
four_axes_einsum = training(EINSUM, **FOUR)
exchanged = training(replace(TINY, remat="exchanged"), mesh=(2, 4))
no_remat = training(replace(TINY, remat="none"), mesh=(2, 4))

MODELS = {
    "moe": ("flint.models.jax.moe", "train_tiny"),
    "moe_einsum": ("flint.models.jax.moe", "train_tiny_einsum"),
    **{
        f"moe_{name}": ("tests.models.jax.names_moe", name)
        for name in (
            "three_axes", "three_axes_einsum", "four_axes", "four_axes_einsum", "exchanged",
        )
    },
}  # fmt: skip
