"""Steps of groups of devices that run programs of their own, put together."""

from __future__ import annotations

import pytest

from flint.converters.profilers.xplane.groups import regrouped


def steps(name, count, runs=1):
    """Steps of some runs each, by their numbers."""
    return [[(name, step * runs + run) for run in range(runs)] for step in range(count)]


def test_a_group_that_runs_more_often_has_several_of_its_steps_in_each():
    actor, learner = regrouped([steps("act", 12), steps("learn", 4)])
    assert learner == steps("learn", 4)
    assert actor == steps("act", 4, 3)
    learner, actor = regrouped([steps("learn", 4), steps("act", 12)])
    assert (actor, learner) == (steps("act", 4, 3), steps("learn", 4))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_group_whose_steps_do_not_fit_is_left_out(count):
    """One that ran once in a profile of four steps made something before them."""
    assert regrouped([steps("learn", 4), steps("other", count)]) == [steps("learn", 4)]
    both = regrouped([steps("learn", 4), steps("other", count), steps("act", 8)])
    assert both == [steps("learn", 4), steps("act", 4, 2)]


def test_one_step_has_all_runs_of_the_others():
    both = regrouped([steps("learn", 1), steps("act", 3)])
    assert both == [steps("learn", 1), steps("act", 1, 3)]
