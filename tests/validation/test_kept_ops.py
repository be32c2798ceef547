"""Sorts and Fourier transforms that only one of a capture and a run has are found."""

from __future__ import annotations

import pytest

from tests.support.shared import quick, quick_rows
from tests.validation import xla_kept_ops
from tests.validation.xla_runs import Runs, named

pytestmark = pytest.mark.xdist_group("validation")

NAMES = ("plain", "ordered", "places", "largest", "waves")
#: Of a capture and of a run, and what differs: a compiler may make another op of a sort.
PAIRS = [
    ("plain", "ordered", "not captured sort among the fused ops"),
    ("plain", "waves", "not captured fft among the fused ops"),
    ("waves", "plain", "not executed fft among the fused ops"),
]


@pytest.fixture(scope="module")
def compare(host_runs):
    """Report of a step's capture against the run of a step."""
    return Runs(host_runs, xla_kept_ops).compare


@pytest.mark.parametrize("name", quick(NAMES, "ordered"))
def test_a_step_agrees_with_its_own_run(name, compare):
    report = compare(name)
    assert report.ok, named(report)


@pytest.mark.parametrize(("captured", "run", "what"), quick_rows(PAIRS, PAIRS[0]))
def test_a_missing_op_is_found(captured, run, what, compare):
    report = compare(captured, run)
    assert not report.ok
    assert what in named(report)
