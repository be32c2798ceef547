"""Which ranks do the same, on made-up ranks whose behaviour is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.frontends.torch.ranks.behaviours import FEW, Answers, behaviours

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


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


@given(SHAPES)
def test_equal_ranks_are_one_program_and_four_recordings_show_it(shape):
    cluster = Cluster(shape, lambda at: "same")
    [found] = behaviours(shape, cluster.sign)
    assert found.ranks.all()
    assert len(cluster.recorded) <= 4


@given(SHAPES, st.data())
def test_every_rank_gets_the_program_that_it_runs(shape, data):
    """Behaviour depends on the places along some axes: all of them, or the first and last."""
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1)))
    ends = data.draw(st.booleans())

    def behaviour(at):
        if ends:
            return [(at[axis] == 0, at[axis] == shape[axis] - 1) for axis in sorted(axes)]
        return [int(at[axis]) for axis in sorted(axes)]

    cluster = Cluster(shape, behaviour)
    found = behaviours(shape, cluster.sign)
    owners = np.stack([item.ranks for item in found])
    assert (owners.sum(0) == 1).all()
    for item in found:
        for rank in np.flatnonzero(item.ranks):
            assert cluster.at(rank) == cluster.at(item.representative)
    assert len({cluster.at(rank) for rank in range(math.prod(shape))}) == len(found)


def test_no_rank_is_recorded_twice():
    cluster = Cluster((4, 2, 8), lambda at: int(at[0]))
    behaviours(cluster.shape, cluster.sign)
    assert len(cluster.recorded) == len(set(cluster.recorded))


def test_recordings_do_not_grow_with_axes_along_which_nothing_changes():
    counts = []
    for size in (8, 64, 512):
        cluster = Cluster((4, size), lambda at: int(at[0]))
        assert len(behaviours(cluster.shape, cluster.sign)) == 4
        counts.append(len(cluster.recorded))
    assert counts[0] == counts[1] == counts[2]


def test_a_rank_that_breaks_the_pattern_is_an_error():
    cluster = Cluster((4, 4, 4), lambda at: "odd" if at == (0, 3, 3) else int(at[0]))
    with pytest.raises(FlintError, match="behaves differently from rank"):
        behaviours(cluster.shape, cluster.sign)


def test_too_many_behaviours_are_refused():
    cluster = Cluster((1024, 2), lambda at: int(at[0]))
    with pytest.raises(FlintError, match="1,024 places together; at most 256"):
        behaviours(cluster.shape, cluster.sign)


@given(SHAPES, st.data())
def test_places_where_something_changes_are_recorded_on_either_side(shape, data):
    """Known breaks along some axes; behaviour changes at all of them, some, or elsewhere too."""
    breaks = [data.draw(st.sets(st.integers(1, size))) - {size} for size in shape]
    real = [data.draw(st.sets(st.sampled_from(sorted(item)))) if item else set() for item in breaks]
    pipeline = data.draw(st.integers(-1, len(shape) - 1))

    def behaviour(at):
        parts = [
            sum(place >= start for start in item) for place, item in zip(at, real, strict=True)
        ]
        return [*parts, at[pipeline] if pipeline >= 0 else 0]

    cluster = Cluster(shape, lambda at: behaviour([int(place) for place in at]))
    found = behaviours(shape, cluster.sign, lambda: breaks)
    for item in found:
        for rank in np.flatnonzero(item.ranks):
            assert cluster.at(rank) == cluster.at(item.representative)
    assert sum(item.ranks.sum() for item in found) == math.prod(shape)


def test_the_last_of_many_shards_is_found_with_four_recordings():
    """251 rows on each of 64 ranks but the last; 8 others beside each."""
    cluster = Cluster((64, 8), lambda at: at[0] == 63)
    found = behaviours((64, 8), cluster.sign, lambda: [{63}, ()])
    assert [item.ranks.sum() for item in found] == [504, 8]
    assert len(cluster.recorded) == 4


def test_two_ranks_of_each_part_are_recorded_and_no_third():
    """128 rows on 256 ranks, and 16,032: ranks 0-127, 128-253, 254 and 255 differ; 8 beside each.

    Two of each part that differ along both axes are 8: the four recorded first (0, the middle, both
    corners of the end) are used.
    """
    starts = [128, 254, 255]
    cluster = Cluster((256, 8), lambda at: sum(at[0] >= start for start in starts))
    found = behaviours((256, 8), cluster.sign, lambda: [set(starts), ()])
    assert [item.ranks.sum() for item in found] == [128 * 8, 126 * 8, 8, 8]
    assert len(cluster.recorded) == 8


@pytest.mark.parametrize("unseen", [False, True])
@given(SHAPES, st.data())
def test_ranks_with_answers_of_their_own_are_recorded(unseen, shape, data):
    """Of any two ranks; where questions are not seen only few ranks are sure to be recorded."""
    world = math.prod(shape)
    assume(not unseen or world <= FEW)
    odd = data.draw(st.sets(st.integers(0, world - 1), max_size=2))
    cluster = Cluster(shape, lambda at: int(np.ravel_multi_index(at, shape)) in odd)
    kinds = np.isin(np.arange(world), [] if unseen else sorted(odd)).astype(np.int64)
    found = behaviours(shape, cluster.sign, None, lambda: Answers(kinds, unseen))
    for item in found:
        for rank in np.flatnonzero(item.ranks):
            assert cluster.at(rank) == cluster.at(item.representative)
    assert unseen or len(cluster.recorded) <= 8


def test_what_a_rank_asks_that_is_recorded_later_counts():
    """Rank 5 alone asks about 6: its kind is known only after it was recorded for its own."""
    cluster = Cluster((16,), lambda at: min(max(at[0], 4), 7))

    def answers():
        kinds = (np.arange(16) == 5).astype(np.int64)
        return Answers(kinds + 2 * (np.arange(16) == 6) * (5 in cluster.recorded))

    behaviours((16,), cluster.sign, None, answers)
    assert {5, 6} <= set(cluster.recorded)
