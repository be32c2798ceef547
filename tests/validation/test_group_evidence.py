"""Groups that no trace names, told or inferred from several ranks' traces, against the capture."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.observed.classes import OpClass
from flint.validation.group_evidence import LIKELY, ONLY, UNLIKE, GroupEvidence, _Run
from flint.validation.matching.unrecorded import GROUP, INFERRED
from flint.validation.report.report import Report
from flint.validation.validating import validate
from tests.support.children import run_script
from tests.support.shared import examples, once

SHAPES = [(2, 2), (2, 3), (2, 4), (4, 2)]


def rows(shape, rank):
    """A rank's column and row: groups along the first axis and along the second."""
    a, b = shape
    low = rank - rank % b
    return tuple(range(rank % b, a * b, b)), tuple(range(low, low + b))


def ran(shape, layers, spread, draw):
    """(start, end) by rank, axis and layer: each layer meets along both axes, one after the other.

    A rank works up to ``spread`` ns before each; members leave within 2 us of each other; clocks
    of the ranks differ by up to 10 ms.
    """
    ranks = range(shape[0] * shape[1])
    now = dict.fromkeys(ranks, 0)
    ahead = {rank: draw.randrange(10_000_000) for rank in ranks}
    found = {(rank, axis): [] for rank in ranks for axis in (0, 1)}
    for _ in range(layers):
        for axis in (1, 0):
            start = {rank: now[rank] + draw.randrange(spread) for rank in ranks}
            for rank in ranks:
                over = max(start[member] for member in rows(shape, rank)[axis]) + 30_000
                now[rank] = over + draw.randrange(2_000)
                found[rank, axis].append((start[rank] + ahead[rank], now[rank] + ahead[rank]))
    return found


def concluded(shape, times, captured):
    """The report of what ``ran``, if a rank's groups are captured as ``captured(shape, rank)``."""
    evidence = GroupEvidence(table={(OpClass.ALL_REDUCE, 64): 0, (OpClass.ALL_GATHER, 32): 1})
    report = Report([], shape[0] * shape[1], True)
    for rank in range(report.world):
        evidence.runs[rank] = []
        for axis, group in enumerate(captured(shape, rank)):
            start, end = np.array(times[rank, axis]).T
            count, kind = len(start), list(evidence.table)[axis][0]
            evidence.groups.add(group)
            evidence.runs[rank].append(
                _Run(
                    rank, group, np.arange(count), np.full(count, axis), np.ones(count, bool),
                    start, end,
                )
            )  # fmt: skip
            report.unrecorded[GROUP] = report.unrecorded.get(GROUP, 0) + count
            report.of(kind).of_any_group += count
    evidence.conclude(report)
    return report


@settings(max_examples=examples(60), deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    layers=st.integers(1, 12),
    spread=st.sampled_from([1_000, 100_000, 3_000_000]),
    seed=st.integers(0, 10_000),
)
def test_a_captured_group_that_ran_is_never_a_difference(shape, layers, spread, seed):
    """Whatever the clocks; and every collective is counted once."""
    report = concluded(shape, ran(shape, layers, spread, random.Random(seed)), rows)
    total = 2 * layers * report.world
    assert report.ok and not report.differences
    settled = report.notes.get(ONLY, 0) + report.notes.get(LIKELY, 0)
    assert report.unrecorded.get(GROUP, 0) == total - settled
    assert report.unrecorded.get(INFERRED, 0) == settled
    assert sum(count.of_any_group for count in report.classes.values()) == total - settled


@settings(max_examples=examples(60), deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    layers=st.integers(1, 12),
    spread=st.sampled_from([1_000, 100_000, 3_000_000]),
    seed=st.integers(0, 10_000),
)
def test_groups_of_the_other_axis_are_never_reported(shape, layers, spread, seed):
    def exchanged(shape, rank):
        return rows(shape, rank)[::-1]

    report = concluded(shape, ran(shape, layers, spread, random.Random(seed)), exchanged)
    assert ONLY not in report.notes
    assert all(one.what == "in another group" for one in report.differences)


def test_ranks_that_drift_tell_their_groups():
    """Work of up to 3 ms between collectives of 30 us: nobody else is there at the time."""
    times = ran((2, 2), 12, 3_000_000, random.Random(1))
    report = concluded((2, 2), times, rows)
    assert report.notes == {ONLY: 2 * 12 * 4}
    assert report.unrecorded == {INFERRED: 2 * 12 * 4}
    wrong = concluded((2, 2), times, lambda shape, rank: rows(shape, rank)[::-1])
    assert wrong.failures == 2 * 12 * 4
    assert "only the ranks" in wrong.differences[0].where


def test_a_group_whose_parts_may_have_met_alone_is_inferred():
    """All four of a row are there at each of its times, but so are any two of them."""
    report = concluded((2, 4), ran((2, 4), 12, 3_000_000, random.Random(1)), rows)
    assert report.notes == {ONLY: 12 * 8, LIKELY: 12 * 8}
    assert report.unrecorded == {INFERRED: 2 * 12 * 8}


def test_ranks_in_step_leave_the_group_untold():
    """All are in every collective at the same time on clocks of their own."""
    report = concluded((2, 2), ran((2, 2), 12, 1_000, random.Random(1)), rows)
    assert report.ok
    assert ONLY not in report.notes
    assert report.unrecorded[GROUP] + report.unrecorded.get(INFERRED, 0) == 2 * 12 * 4


@pytest.mark.thorough
@pytest.mark.xdist_group("validation-mesh-gloo")
@pytest.mark.parametrize("name", ["mesh_2x2", "mesh_2x4", "mesh_4x2"])
def test_gloo_ranks_on_two_axes(tmp_path_factory, name):
    """Profiled as they are: the capture agrees, some of its groups are inferred; the one whose axes
    are exchanged fits nowhere alone.
    """
    pytest.importorskip("torch")
    from tests.validation.mesh_steps import STEPS, SWAPPED

    script = Path(__file__).parent / "torch_profiling.py"
    place = f"tests.validation.mesh_steps:{name}"
    folder = once(
        tmp_path_factory, name, lambda folder: run_script(script, folder, place, imported="torch")
    )
    files = sorted(folder.glob("kineto_rank*.json"))
    report = validate(STEPS[name].capture(), files)
    assert report.ok, (report.verdict, report.differences[:4])
    settled = report.notes.get(ONLY, 0) + report.notes.get(LIKELY, 0)
    assert settled > 0
    # Three collectives in each of six layers.  Where the axes differ in size, the size of an
    # all-gather's result tells its axis, and only the two all-reduces are in question; the thread
    # that ran both tells some, if it is certain what it ran.
    total = (18 if name == "mesh_2x2" else 12) * len(files)
    assert report.unrecorded.get(GROUP, 0) <= total - settled
    assert report.notes.get(UNLIKE, 0) <= total - settled
    assert ONLY not in validate(SWAPPED[name]().capture(), files).notes
