"""Sets of ranks."""

from __future__ import annotations

from flint.mesh.ranks import RankSet, pattern


def test_the_pattern_of_several_sets_repeats_after_their_common_period():
    """Every fourth and every sixth of 24 ranks: 12 is the least common multiple."""
    every_fourth, every_sixth = RankSet(24, 4, ((0, 1),)), RankSet(24, 6, ((1, 2),))
    assert pattern([every_fourth, every_sixth]).tolist() == list(range(12))
