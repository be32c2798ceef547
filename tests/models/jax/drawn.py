"""Weights of models that really run, drawn by numpy: JAX would compile for longer than a step."""

from __future__ import annotations

import numpy as np

from flint.models.jax.parameters import tree_map


def drawn(tree, seed=0, times=1):
    """Arrays with the means and scales of a tree of ``Parameter``, in its types, times a factor."""
    random = np.random.default_rng(seed)

    def one(p):
        normal = random.standard_normal(p.shape, np.float32)
        return ((p.mean + p.scale * normal) * times).astype(p.dtype)

    return tree_map(one, tree)
