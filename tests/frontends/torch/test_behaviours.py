"""Which ranks do the same, on made-up ranks whose behaviour is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.frontends.torch.evidence import evidence_of
from flint.frontends.torch.ranks.behaviours import behaviours
from tests.frontends.torch.made_up_ranks import Cluster

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def starts(shape, places):
    """What is known of places from which on something changes along mesh axes."""
    at = np.unravel_index(np.arange(math.prod(shape)), shape)
    return [
        evidence_of(f"axis {axis}", np.searchsorted(sorted(item), at[axis], side="right"))
        for axis, item in enumerate(places)
    ]


@given(SHAPES)
def test_equal_ranks_are_one_program_and_four_recordings_show_it(shape):
    cluster = Cluster(shape, lambda at: "same")
    [found], _ = behaviours(shape, cluster.sign)
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
    found, _ = behaviours(shape, cluster.sign)
    assert cluster.wrong(found) == []
    assert len({cluster.at(rank) for rank in range(math.prod(shape))}) == len(found)


def test_no_rank_is_recorded_twice():
    cluster = Cluster((4, 2, 8), lambda at: int(at[0]))
    behaviours(cluster.shape, cluster.sign)
    assert len(cluster.recorded) == len(set(cluster.recorded))


def test_recordings_do_not_grow_with_axes_along_which_nothing_changes():
    counts = []
    for size in (8, 64, 512):
        cluster = Cluster((4, size), lambda at: int(at[0]))
        assert len(behaviours(cluster.shape, cluster.sign)[0]) == 4
        counts.append(len(cluster.recorded))
    assert counts[0] == counts[1] == counts[2]


def test_a_rank_that_breaks_the_pattern_is_an_error():
    cluster = Cluster((4, 4, 4), lambda at: "odd" if at == (0, 3, 3) else int(at[0]))
    with pytest.raises(FlintError, match="behaves differently from rank"):
        behaviours(cluster.shape, cluster.sign)


def test_too_many_behaviours_are_refused():
    cluster = Cluster((1024, 2), lambda at: int(at[0]))
    with pytest.raises(FlintError, match="1,024 places in total; the limit is 256"):
        behaviours(cluster.shape, cluster.sign)


@pytest.mark.parametrize("shape", [(1024, 2), (600,)])
def test_ranks_with_data_of_their_own_count_as_one_if_they_communicate_the_same(shape):
    sizes = np.random.default_rng(0).integers(0, 1000, shape)
    cluster = Cluster(shape, lambda at: int(sizes[at]))
    [found], _ = behaviours(shape, cluster.sign, messages=lambda rank: "all the same")
    assert found.representative == 0 and found.ranks.all()
    assert len(cluster.recorded) <= 70


@pytest.mark.parametrize("shape", [(1024, 2), (600,)])
def test_ranks_that_communicate_otherwise_do_not_count_as_one(shape):
    sizes = np.random.default_rng(0).integers(0, 1000, shape)
    cluster = Cluster(shape, lambda at: int(sizes[at]))
    with pytest.raises(FlintError, match="behave"):
        behaviours(shape, cluster.sign, messages=cluster.at)


@given(SHAPES, st.data())
def test_places_where_something_changes_are_recorded_on_either_side(shape, data):
    """Known starts along some axes; behaviour changes at all of them, some, or elsewhere too."""
    places = [data.draw(st.sets(st.integers(1, size))) - {size} for size in shape]
    real = [data.draw(st.sets(st.sampled_from(sorted(item)))) if item else set() for item in places]
    pipeline = data.draw(st.integers(-1, len(shape) - 1))

    def behaviour(at):
        parts = [sum(at >= start for start in item) for at, item in zip(at, real, strict=True)]
        return [*map(int, parts), int(at[pipeline]) if pipeline >= 0 else 0]

    cluster = Cluster(shape, behaviour)
    found, _ = behaviours(shape, cluster.sign, lambda: starts(shape, places))
    assert cluster.wrong(found) == []


def test_the_last_of_many_shards_is_found_with_four_recordings():
    """251 rows on each of 64 ranks but the last; 8 others beside each."""
    cluster = Cluster((64, 8), lambda at: at[0] == 63)
    found, _ = behaviours((64, 8), cluster.sign, lambda: starts((64, 8), [{63}, ()]))
    assert [item.ranks.sum() for item in found] == [504, 8]
    assert len(cluster.recorded) == 4


def test_two_ranks_of_each_part_are_recorded_and_no_third():
    """128 rows on 256 ranks, and 16,032: ranks 0-127, 128-253, 254 and 255 differ; 8 beside each.

    Two of each part that differ along both axes are 8: the four recorded first (0, the middle, both
    corners of the end) are used.
    """
    places = [128, 254, 255]
    cluster = Cluster((256, 8), lambda at: sum(at[0] >= start for start in places))
    found, _ = behaviours((256, 8), cluster.sign, lambda: starts((256, 8), [places, ()]))
    assert [item.ranks.sum() for item in found] == [128 * 8, 126 * 8, 8, 8]
    assert len(cluster.recorded) == 8


@given(SHAPES, st.data())
def test_all_evidence_counts_whatever_else_there_is(shape, data):
    """Questions about any ranks, starts along axes and stages; behaviour follows from all."""
    world = math.prod(shape)
    ranks = st.sets(st.integers(0, world - 1), max_size=3)
    odd = [data.draw(ranks) for _ in range(data.draw(st.integers(0, 3)))]
    silent = [data.draw(ranks)]
    places = [data.draw(st.sets(st.integers(1, size))) - {size} for size in shape]

    def behaviour(at):
        rank = int(np.ravel_multi_index(at, shape))
        parts = [
            int(sum(at >= start for start in item)) for at, item in zip(at, places, strict=True)
        ]
        return [rank in item for item in odd] + parts

    def evidence():
        everyone = np.arange(world)
        asked = [np.isin(everyone, sorted(item)) for item in odd + silent]
        yield from (evidence_of("asked", item, asked=True) for item in asked)
        yield from starts(shape, places)

    cluster = Cluster(shape, behaviour)
    found, _ = behaviours(shape, cluster.sign, evidence)
    assert cluster.wrong(found) == []
    assert len({cluster.at(rank) for rank in range(world)}) == len(found)


def test_what_a_rank_asks_that_is_recorded_later_counts():
    """Rank 5 is asked about by all; it alone asks about 20, which no one else does."""
    cluster = Cluster((32,), lambda at: {5: 1, 20: 2}.get(int(at[0]), 0))

    def evidence():
        yield evidence_of("all", np.arange(32) == 5, asked=True)
        if 5 in cluster.recorded:
            yield evidence_of("one", np.arange(32) == 20, asked=True)

    found, _ = behaviours((32,), cluster.sign, evidence)
    assert cluster.wrong(found) == []
    assert len(cluster.recorded) <= 7


@pytest.mark.parametrize(("changes", "recorded"), [(False, [0, 32, 63]), (True, [0, 32, 40, 63])])
def test_a_question_costs_a_second_recording_only_where_it_changes_something(changes, recorded):
    """Below 40, 0 and 32 are two; from there on, 63 is one, and the first is the other."""
    asked = evidence_of("is it less than 40", np.arange(64) < 40, asked=True)
    cluster = Cluster((64,), lambda at: changes and at[0] < 40)
    found, _ = behaviours((64,), cluster.sign, lambda: [asked])
    assert cluster.wrong(found) == []
    assert sorted(cluster.recorded) == recorded


def test_evidence_of_a_rank_that_is_known_decides_whom_else_to_record():
    """510 ranks have rows of 128,256 in parts of 251, the next has the rest, the last has none; the
    program asks who is below 464.  Beside rank 0, one rank of each of the other three suffices, and
    the end of the 510, so that two of them that ask nothing are compared."""
    everyone = np.arange(512)
    known = [
        evidence_of("rows", np.searchsorted([510, 511], everyone, side="right")),
        evidence_of("is it less than 464", everyone < 464, asked=True),
    ]
    cluster = Cluster((512,), lambda at: max(int(at[0]) - 509, 0))
    found, _ = behaviours((512,), cluster.sign, lambda: known, recorded=[0])
    assert cluster.wrong(found) == []
    assert sorted(cluster.recorded) == [0, 509, 510, 511]


def test_many_questions_of_one_place_are_distinguished_by_how_many_are_answered_yes():
    """Groups of four among 4,096 ranks, of which each rank asks one by one whether it is in it."""
    world = 4096
    every = [evidence_of("at train.py:7", np.arange(world) // 4 == at, True) for at in range(1000)]
    cluster = Cluster((world,), lambda at: at[0] < 4000)
    found, partition = behaviours((world,), cluster.sign, lambda: every)
    assert cluster.wrong(found) == []
    assert (partition.count, partition.counted) == (2, ("at train.py:7",))
    assert len(cluster.recorded) <= 6


@pytest.mark.parametrize("roles", [1, 2])
def test_close_evidence_counts_where_recorded_ranks_differ(roles):
    """Two halves of 512 ranks are told apart only if they do not do the same."""
    halves = evidence_of("at train.py:7", np.arange(512) // 256, asked=True, close=True)
    cluster = Cluster((512,), lambda at: at[0] // 256 % roles)
    found, partition = behaviours((512,), cluster.sign, lambda: [halves])
    assert cluster.wrong(found) == []
    assert (len(found), partition.count) == (roles, roles)
    assert len(cluster.recorded) <= 4


def test_close_evidence_that_does_not_explain_a_difference_is_left_alone():
    """Ranks differ by the parity of their number; groups of two that were asked about do not."""
    pairs = evidence_of("at train.py:7", np.arange(512) // 2, asked=True, close=True)
    cluster = Cluster((256, 2), lambda at: at[1])
    found, partition = behaviours((256, 2), cluster.sign, lambda: [pairs])
    assert cluster.wrong(found) == []
    assert partition.count == 2


def test_facts_of_more_ways_than_are_recorded_are_refused():
    cluster = Cluster((1024,), lambda at: int(at[0]))
    stages = evidence_of("stages", np.arange(1024))
    with pytest.raises(FlintError, match=r"1,024 ways .*the limit is 256"):
        behaviours((1024,), cluster.sign, lambda: [stages])


def test_questions_of_more_ways_than_are_recorded_are_named():
    """A number of 1,000 values: which ranks differ is unknown; other knowledge still counts."""
    cluster = Cluster((1024,), lambda at: at[0] == 7)
    known = [
        evidence_of("at train.py:3", np.arange(1024) % 1000, asked=True),
        evidence_of("at train.py:5", np.arange(1024) == 7, asked=True),
    ]
    found, partition = behaviours((1024,), cluster.sign, lambda: known)
    assert cluster.wrong(found) == []
    assert partition.left_out == ("at train.py:3",)


@pytest.mark.parametrize("odd", [{512, 513}, {1023}, set(range(300, 1024))])
def test_ranks_that_differ_by_what_is_not_seen_are_narrowed_down(odd):
    """1,024 ranks are halved ten times at each end of those that differ."""
    cluster = Cluster((1024,), lambda at: at[0] in odd)
    found, _ = behaviours((1024,), cluster.sign, tuple, lambda: True)
    assert cluster.wrong(found) == []
    assert len(cluster.recorded) <= 4 + 8 + 2 * 10
