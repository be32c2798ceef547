"""Questions of recorded ranks that are one question, moved along mesh axes."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flint.frontends.torch.evidence import evidence_of
from flint.frontends.torch.ranks.moved_questions import moved, with_moved

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
PLACE = "at train.py:7"


def question(about, shape):
    """Who is answered yes: ranks at some places of the mesh."""
    yes = np.zeros(shape, bool)
    for place in about:
        yes[tuple(place)] = True
    return evidence_of(PLACE, yes.reshape(-1), asked=True)


def asked(shape, axes, places):
    """What every rank asks about: places that are as far from it along some axes as from rank 0."""
    everyone = {}
    for rank, at in enumerate(np.ndindex(shape)):
        step = [at[axis] if axis in axes else 0 for axis in range(len(shape))]
        everyone[rank] = [question([np.add(place, step) % shape for place in places], shape)]
    return everyone


def answers(everyone):
    """What every rank's own question says about it."""
    return [bool(items[0].kinds()[rank]) for rank, items in everyone.items()]


@given(SHAPES, st.data())
def test_what_all_ranks_ask_follows_from_all_of_them(shape, data):
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1)))
    place = st.tuples(*(st.integers(0, size - 1) for size in shape))
    everyone = asked(shape, axes, data.draw(st.lists(place, min_size=1, max_size=3)))
    for items in moved(everyone, shape).values():
        told = items[0].kinds().astype(bool) if items else np.zeros(math.prod(shape), bool)
        # Evidence is of a difference: all yes and all no are none.
        assert told.tolist() == answers(everyone) or len(set(answers(everyone))) == 1


@given(SHAPES, st.data())
def test_two_ranks_that_differ_along_all_axes_suffice_for_one_rank_that_is_asked_about(shape, data):
    axes = data.draw(st.sets(st.integers(0, len(shape) - 1)))
    place = data.draw(st.tuples(*(st.integers(0, size - 1) for size in shape)))
    everyone = asked(shape, axes, [place])
    last = math.prod(shape) - 1
    for items in moved({0: everyone[0], last: everyone[last]}, shape).values():
        [told] = [item.kinds().astype(bool).tolist() for item in items] or [[False] * (last + 1)]
        assert told == answers(everyone) or len(set(answers(everyone))) == 1


def test_the_first_of_each_row_is_told_apart_by_the_questions_of_two_ranks():
    shape = (4, 4)
    known = {0: [question([(0, 0)], shape)], 15: [question([(3, 0)], shape)]}
    [told] = with_moved(known, shape)
    assert np.flatnonzero(told.kinds()).tolist() == [0, 4, 8, 12]


def test_questions_that_do_not_move_along_axes_stay():
    """The first of every two rows: row 3 asks about row 2."""
    shape = (4, 4)
    known = {0: [question([(0, 0)], shape)], 15: [question([(2, 0)], shape)]}
    assert moved(known, shape) == {}
    assert list(with_moved(known, shape)) == [known[0][0], known[15][0]]


def test_questions_that_all_ask_and_numbers_of_many_values_stay():
    same = question([(0,)], (8,))
    values = [evidence_of(PLACE, (np.arange(8) + rank) % 5, asked=True) for rank in (0, 7)]
    assert moved({0: [same], 7: [same]}, (8,)) == {}
    assert moved({0: [values[0]], 7: [values[1]]}, (8,)) == {}
