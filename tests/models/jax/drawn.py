"""Weights of models that really run, drawn by numpy, because JAX would compile for longer than a
step; and how far results are apart."""

from __future__ import annotations

import jax
import numpy as np

from flint.models.jax.parameters import tree_map


def drawn(tree, seed=0, times=1):
    """Arrays with the means and scales of a tree of ``Parameter``, in its types, times a factor."""
    random = np.random.default_rng(seed)

    def one(p):
        normal = random.standard_normal(p.shape, np.float32)
        return ((p.mean + p.scale * normal) * times).astype(p.dtype)

    return tree_map(one, tree)


def distance(ours, theirs):
    """Path -> largest difference over the largest element, of two trees of arrays."""
    ours, theirs = jax.device_get((ours, theirs))
    far = jax.tree.map(lambda a, b: float(abs(a - b).max() / abs(b).max()), ours, theirs)
    return {jax.tree_util.keystr(path): value for path, value in jax.tree.leaves_with_path(far)}
