"""Clocks of ranks from the collectives in which they meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.observed.classes import OpClass
from flint.observed.clocks import Meetings, Presence
from flint.validation.report.sanity_checks import shown_ranks

ALL = (0, 1, 2, 3)


def meetings(collectives, ahead):
    """Collectives as (group, {rank: arrival}, leave) in ns; each rank's clock is ``ahead``."""
    found = Meetings()
    for number, (group, arrivals, leave) in enumerate(collectives):
        for rank in group:
            start, end = arrivals[rank] + ahead[rank], leave + ahead[rank]
            key = (OpClass.ALL_REDUCE, group, number)
            found.add(rank, key, Presence(start, end, end - start))
    return found


@st.composite
def runs(draw):
    """Collectives that could have happened: no rank leaves before the last has arrived."""
    ahead = [0, *(draw(st.integers(-(10**9), 10**9)) for _ in ALL[1:])]
    now, collectives = 10**12, []
    for _ in range(draw(st.integers(1, 12))):
        group = draw(st.sampled_from([ALL, (0, 1), (2, 3), (0, 2), (1, 3)]))
        arrivals = {rank: now + draw(st.integers(0, 5_000_000)) for rank in group}
        now = max(arrivals.values()) + draw(st.integers(1, 1_000_000))
        collectives.append((group, arrivals, now))
    return collectives, ahead


@given(runs())
def test_the_true_difference_lies_within_the_bounds(run):
    collectives, ahead = run
    for clock in meetings(collectives, ahead).clocks():
        true = (ahead[clock.rank] - ahead[clock.reference]) / 1e9
        assert clock.agree
        assert clock.least - 1e-9 <= true <= clock.most + 1e-9


def test_a_clock_that_is_ahead_is_estimated_by_when_members_leave():
    # Arrivals 4 ms apart, in turns; all leave together: the ends differ by the clocks alone.
    collectives = [
        ((0, 1), {0: 10**9 * n, 1: 10**9 * n + (-1) ** n * 2_000_000}, 10**9 * n + 3_000_000)
        for n in range(1, 6)
    ]
    [clock] = meetings(collectives, {0: 0, 1: 70_000_000}).clocks()
    assert (clock.rank, clock.reference, clock.ahead) == (1, 0, 0.07)
    assert clock.agree


def test_clocks_that_may_agree_are_not_said_to_differ():
    collectives = [((0, 1), {0: 1_000_000, 1: 3_000_000}, 4_000_000)]
    [clock] = meetings(collectives, {0: 0, 1: 500_000}).clocks()
    assert clock.ahead == 0


def test_traces_of_different_runs_do_not_agree():
    found = Meetings()
    for number, late in enumerate((0, 10**9, 0)):  # the second one a second later on rank 1 alone
        begin = 10**10 * (number + 1)
        key = (OpClass.ALL_REDUCE, (0, 1), number)
        found.add(0, key, Presence(begin, begin + 1000, 1000))
        found.add(1, key, Presence(begin + late, begin + late + 1000, 1000))
    [clock] = found.clocks()
    assert not clock.agree


def test_ranks_that_never_meet_have_no_clock_against_each_other():
    collectives = [
        ((0, 1), {0: 0, 1: 0}, 10),
        ((2, 3), {2: 0, 3: 0}, 10),
    ]
    clocks = meetings(collectives, [0, 0, 0, 0]).clocks()
    assert [(clock.rank, clock.reference) for clock in clocks] == [(1, 0), (3, 2)]


def test_waiting_is_what_a_rank_spends_beyond_the_fastest():
    collectives = [((0, 1), {0: 0, 1: 300}, 400), ((0,), {0: 0}, 50)]
    [waited] = meetings(collectives, [0, 10**6]).waiting().values()
    assert waited == {0: 300, 1: 0}


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([3], "rank 3"),
        ([1, 2, 3, 7], "ranks 1-3, 7"),
        (list(range(0, 40, 2)), "ranks 0, 2, 4, 6, 8, 10, 12, 14, ... (20 ranks)"),
    ],
)
def test_ranks_in_words(ranks, text):
    import numpy as np

    assert shown_ranks(np.array(ranks)) == text
