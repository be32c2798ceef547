"""The values that a program is given for unknown ones."""

from __future__ import annotations

import sys

import pytest

from flint.launching.program import StepChoice
from flint.launching.unknown import Unknown


def numbers(unknown, place, count):
    return [unknown.number(place) for _ in range(count)]


def test_floats_are_one_at_first():
    assert numbers(Unknown(), "train.py:7", 3) == [1.0] * 3


@pytest.mark.parametrize("values", [1, 2])
def test_later_floats_fall_line_by_line_and_none_is_read_twice(values):
    unknown = Unknown(values)
    lines = [numbers(unknown, f"train.py:{line}", 8) for line in range(12)]
    for line in lines:
        assert line == sorted(line, reverse=True)
    assert len({number for line in lines for number in line}) == 8 * 12


def test_floats_fall_fifty_times_and_are_as_at_first_then():
    """So that ``while loss > 0.1`` ends where nothing else does."""
    assert numbers(Unknown(1), "train.py:7", 52)[50:] == [1.0, 1.0]


def rounds(unknown, trains):
    count = 0
    while unknown.goes_on(sys._getframe()):
        count += 1
        unknown.trained += trains
    return count


@pytest.mark.parametrize(("values", "trains", "count"), [(0, 1, 0), (1, 1, 50), (1, 0, 1)])
def test_a_loop_continues_as_long_as_its_rounds_train(values, trains, count):
    assert rounds(Unknown(values), trains) == count


def test_an_error_is_avoided_from_the_first_run_on():
    unknown, frame = Unknown(), sys._getframe()
    answers = []

    class Asked:
        def __bool__(self):
            answers.append(unknown.goes_on(frame))
            return answers[-1][0]

    assert Asked(), "so that no error is raised"
    assert answers == [(True, "so that no error is raised")]


def test_a_program_that_was_given_values_runs_twice_more_with_others():
    choice, unknown = StepChoice(number=3), Unknown()
    assert unknown.again(choice) is None
    unknown.number("train.py:7")
    assert unknown.again(choice) == StepChoice(number=3, values=1)
    last = Unknown(2)
    last.number("train.py:7")
    assert last.again(choice) is None
