"""Warnings of questions that recorded ranks ask about different numbers."""

from __future__ import annotations

import numpy as np

from flint.frontends.torch.evidence import evidence_of
from flint.frontends.torch.ranks.behaviours import Behaviour
from flint.frontends.torch.ranks.partition import crossed
from flint.frontends.torch.ranks.rank_report import RankReport
from flint.frontends.torch.ranks.rank_warnings import rank_warnings

#: Two stages of eight ranks.
SHAPE, WORLD = (2, 8), 16
STAGES = evidence_of("stages", np.arange(WORLD) // 8)


def warned(asked):
    """Places that are warned of, where recorded ranks ask whether a rank is one of some."""
    reports = {
        rank: RankReport(
            "same", "same", "same", (STAGES, evidence_of("at a.py:1", about, asked=True)),
            {}, (), (("pp", 2), ("dp", 8)),
        )
        for rank, about in asked.items()
    }  # fmt: skip
    partition = crossed([STAGES], WORLD)
    found = [Behaviour(0, np.ones(WORLD, bool))]
    return [text for text in rank_warnings(reports, partition, found, SHAPE) if "a.py:1" in text]


def below(number):
    return np.arange(WORLD) < number


def test_stages_may_ask_about_other_numbers():
    """A rank of the first stage asks who is below 3, and one of the second who is below 13."""
    assert not warned({0: below(3), 7: below(3), 8: below(13), 15: below(13)})


def test_ranks_of_one_stage_that_ask_about_other_numbers_are_warned_of():
    """0 asks who is below 3, and 7 who is below 5: what 4 asks is not known."""
    (text,) = warned({0: below(3), 7: below(5), 8: below(13), 15: below(13)})
    assert "different numbers on different ranks" in text and "4 of 16 were" in text


def test_numbers_that_move_along_axes_are_known():
    """The last of each stage."""
    last = {rank: np.arange(WORLD) == rank // 8 * 8 + 7 for rank in (0, 7, 8, 15)}
    assert not warned(last)
