"""Runs that a JAX profile has only a part of, by hand-made events."""

from __future__ import annotations

import pytest

from flint.converters.profilers.xplane.events import Event
from flint.converters.profilers.xplane.whole_runs import whole_runs

ENTRY = frozenset({"gather", "dot", "sum", "while"})
WHOLE = ("gather", "dot", "while", "inside", "inside", "sum")


def ran(*runs, rank=0, numbers=None):
    """The events of a rank's runs, one after the other, each with these ops."""
    found, when = [], 0
    for place, names in enumerate(runs):
        for name in names:
            when += 10
            number = place if numbers is None else numbers[place]
            found.append(
                Event(rank, number, when, 10, name, "jit_step(1)", "cpu", "", when + 10, 0, -1)
            )
    return found


def kept(events, file_of=None):
    """The runs that are left of each rank, and how many are not."""
    ranks = sorted({event.device for event in events})
    left, cut = whole_runs(sorted(events), ENTRY, file_of or dict.fromkeys(ranks, 0))
    assert left == [event for event in sorted(events) if event in set(left)]
    return {rank: sorted({e.run for e in left if e.device == rank}) for rank in ranks}, cut


@pytest.mark.parametrize(
    ("runs", "whole"),
    [
        ((WHOLE, WHOLE), [0, 1]),
        ((WHOLE[3:], WHOLE), [1]),
        ((WHOLE, WHOLE[:2]), [0]),
        ((WHOLE[-1:], WHOLE, WHOLE, WHOLE[:4]), [1, 2]),
        ((WHOLE[:2],), [0]),  # with nothing beside it
        ((WHOLE, WHOLE[:2], WHOLE), [0, 1, 2]),  # devices do not run on in the middle
        ((WHOLE, (*WHOLE[:3], *WHOLE[4:])), [0, 1]),  # a loop of fewer iterations
    ],
)
def test_a_first_or_last_run_without_ops_of_the_entry_is_no_step(runs, whole):
    assert kept(ran(*runs)) == ({0: whole}, len(runs) - len(whole))


def test_a_run_that_is_cut_on_one_device_is_no_step_on_any():
    """As after a loss was read: the other devices have not summed up yet."""
    numbers = [7, 5]  # of runs: not in the order of time
    events = ran(WHOLE, WHOLE, numbers=numbers) + ran(WHOLE, WHOLE[:5], rank=1, numbers=numbers)
    assert kept(events) == ({0: [7], 1: [7]}, 1)


def test_a_run_that_only_some_devices_have_is_no_step():
    """So that the first run of one device is not compared with the second one of another."""
    events = ran(WHOLE, WHOLE, numbers=[4, 5]) + ran(
        WHOLE[4:], WHOLE, WHOLE, rank=1, numbers=[3, 4, 5]
    )
    assert kept(events) == ({0: [4, 5], 1: [4, 5]}, 1)


def test_processes_that_number_their_runs_themselves_keep_all():
    events = ran(WHOLE, numbers=[4]) + ran(WHOLE, rank=1, numbers=[9])
    assert kept(events, {0: 0, 1: 1}) == ({0: [4], 1: [9]}, 0)
    assert kept(events) == ({0: [4], 1: [9]}, 0)  # devices that number theirs, too


def test_runs_of_which_none_is_whole_on_all_devices_are_kept():
    numbers = [1, 2]
    events = ran(WHOLE, WHOLE[:3], numbers=numbers) + ran(WHOLE[3:], WHOLE, rank=1, numbers=numbers)
    assert kept(events) == ({0: [1, 2], 1: [1, 2]}, 0)


def test_runs_without_a_common_number_are_cut_on_each_device_alone():
    """The second run of one is the first of the other, which has nothing of the one before."""
    events = ran(WHOLE[4:], WHOLE, WHOLE) + ran(WHOLE, WHOLE, rank=1)
    assert kept(events, {0: 0, 1: 1}) == ({0: [1, 2], 1: [0, 1]}, 1)
