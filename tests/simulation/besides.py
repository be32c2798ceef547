"""What communications leave to what runs at the same time, all alike."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flint.simulation.actor_columns import CAPACITY, Beside


def beside(speeds: Sequence[float], load: float = 1.0) -> Beside:
    """Speeds of kernels by node, and the part of the links that each node takes."""
    nodes = len(speeds)
    taken = np.array([[load * CAPACITY]]).astype(np.int64)
    return Beside(np.array(speeds, np.float64), np.zeros(nodes, np.int64), taken)
