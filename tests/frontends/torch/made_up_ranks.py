"""Ranks whose behaviour is known, for tests of the search for ranks that do the same."""

from __future__ import annotations

import numpy as np


class Cluster:
    """Ranks that do what ``behaviour`` of their coordinates says; counts who is recorded."""

    def __init__(self, shape, behaviour):
        self.shape = shape
        self.behaviour = behaviour
        self.recorded = []

    def sign(self, ranks):
        self.recorded += ranks
        return {rank: self.at(rank) for rank in ranks}

    def at(self, rank):
        return str(self.behaviour(tuple(np.unravel_index(rank, self.shape))))

    def wrong(self, found):
        """Ranks that do not do the same as their class; each must be in one."""
        assert (np.stack([item.ranks for item in found]).sum(0) == 1).all()
        return [
            rank
            for item in found
            for rank in np.flatnonzero(item.ranks)
            if self.at(rank) != self.at(item.representative)
        ]
