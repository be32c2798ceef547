"""Which answer makes a loop go on, or avoids an error, asked while it is asked for.

PYTEST_DONT_REWRITE: its asserts are compiled otherwise than those of programs.
"""

from __future__ import annotations

import contextlib
import sys

import pytest

from flint.launching.loop_ends import passing, staying


class Asked:
    """Something that is false, and notes which answer would make a loop go on, or is wanted
    otherwise.
    """

    def __init__(self, wanted=staying):
        self.answers, self._wanted = [], wanted

    def __bool__(self):
        self.answers.append(self._wanted(sys._getframe(1)))
        return False


def while_head(asked):
    while asked:
        pass


def while_among_others(asked):
    count = 0
    while count < 2 and not asked:
        count += 1


def guarded_break(asked):
    for _ in range(2):
        if asked:
            break


def break_of_the_inner_loop(asked):
    for _ in range(2):
        for _ in range(1):
            if asked:
                print("done")
                break


def returning(asked):
    while True:
        if not asked:
            return


def in_a_flag(asked):
    done, count = False, 0
    while not done and count < 2:
        done = bool(asked)
        count += 1


def in_a_function(asked):
    def is_over():
        return not asked

    while True:
        if is_over():
            break


def one_of_two_branches(asked):
    for _ in range(2):
        if asked:
            print("yes")
        else:
            print("no")


def no_loop(asked):
    if asked:
        print("yes")


def kept(asked):
    for _ in range(1):
        print(bool(asked))


@pytest.mark.parametrize(
    ("function", "answers"),
    [
        (while_head, [True]),
        (while_among_others, [False] * 2),
        (guarded_break, [False] * 2),
        (break_of_the_inner_loop, [False] * 2),
        (returning, [True]),
        (in_a_flag, [False] * 2),
        (in_a_function, [True]),
        (one_of_two_branches, [None] * 2),
        (no_loop, [None]),
        (kept, [None]),
    ],
)
def test_the_continuing_answer_is_that_of_the_innermost_loop(function, answers, capsys):
    asked = Asked()
    function(asked)
    assert asked.answers == answers


def asserted(asked):
    assert asked, f"{asked.answers} is false"


def asserted_with_another(asked):
    assert asked and asked


def one_of_two_is_enough(asked):
    assert asked or not asked  # noqa: SIM221


def raising(asked):
    for _ in range(1):
        if asked:
            print("a bad value")
            raise ValueError(asked)


def raising_either_way(asked):
    if asked:
        raise ValueError
    raise TypeError


def checked_by_a_function(asked):
    def is_good():
        return bool(asked)

    if not is_good():
        raise ValueError


def checked_by_two_conditions(asked):
    def is_good():
        return (sys and asked) or (not sys and asked)

    if not is_good():
        raise ValueError


def failing_by_two_conditions(asked):
    is_bad = sys and (asked or asked)
    if is_bad:
        raise ValueError


@pytest.mark.parametrize(
    ("function", "answers"),
    [
        (checked_by_two_conditions, [True]),
        (failing_by_two_conditions, [False] * 2),
        (asserted, [True]),
        (asserted_with_another, [True]),
        (one_of_two_is_enough, [None, False]),
        (raising, [False]),
        (raising_either_way, [None]),
        (checked_by_a_function, [True]),
        (no_loop, [None]),
        (while_head, [None]),
    ],
)
def test_the_answer_that_avoids_an_error(function, answers):
    asked = Asked(passing)
    with contextlib.suppress(AssertionError, ValueError, TypeError):
        function(asked)
    assert asked.answers == answers
