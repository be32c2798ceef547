"""Work on several things in forked processes: results in order, and errors as they are."""

from __future__ import annotations

import os
import signal

import pytest

from flint.errors import FlintError, UsageError
from flint.host.side_by_side import side_by_side


def square(number):
    if number < 0:
        raise UsageError(f"{number}: below zero")
    return os.getpid(), number * number


def dies(number):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_things(jobs):
    found = list(side_by_side(square, range(7), jobs))
    assert [number for _, number in found] == [0, 1, 4, 9, 16, 25, 36]
    processes = {process for process, _ in found}
    assert (processes == {os.getpid()}) == (jobs == 1) and len(processes) <= jobs


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_is_the_one_that_the_work_raised(jobs):
    with pytest.raises(UsageError, match="-3: below zero"):
        list(side_by_side(square, [1, -3, 2], jobs))


def test_a_process_that_dies_is_an_error():
    with pytest.raises(FlintError, match="ran out of memory: give fewer files"):
        list(side_by_side(dies, [1, 2], 2))
