"""Conditionals by data whose branches communicate over different axes, against real runs."""

from __future__ import annotations

import pytest

import flint
from flint.errors import FlintError
from flint.observed.classes import OpClass
from flint.validation.rewrites.branches import CHOSEN, NOT_CHOSEN
from flint.validation.validating import validate
from tests.support.shared import quick, quick_rows
from tests.validation import xla_conditionals
from tests.validation.xla_runs import Runs

pytestmark = pytest.mark.xdist_group("validation")


@pytest.fixture(scope="module")
def runs(host_runs):
    """Real runs on host devices."""
    return Runs(host_runs, xla_conditionals)


@pytest.fixture(scope="module")
def compare(runs):
    """Report of a step's capture, of one branch, against the run of a step."""
    return runs.compare


@pytest.mark.parametrize(
    ("name", "ran"),
    quick_rows([("over_x", 1), ("over_y", 0), ("wide_x", 1), ("wide_y", 0)], ("over_x", 1)),
)
@pytest.mark.parametrize("branch", [0, 1])
def test_a_sum_over_other_axes_than_captured_is_what_data_chose(name, ran, branch, compare):
    report = compare(name, name, branch)
    assert report.ok, report.verdict
    reduces = report.classes[OpClass.ALL_REDUCE]
    other = 8 if branch != ran else 0  # one on each device, and never called a match
    assert (reduces.captured, reduces.matched, reduces.explained_captured) == (8, 8 - other, other)
    assert report.explained == ({NOT_CHOSEN: 8, CHOSEN: 8} if other else {})


@pytest.mark.parametrize(
    ("name", "run"),
    quick_rows(
        [
            ("over_x", "wide_x"),  # what ran is in neither branch
            ("over_y", "wide_y"),
            ("over_x", "turned_x"),
            ("over_y", "turned_y"),
            ("square_x", "square_turned"),  # and here in the other branch, which did not run
        ],
        ("over_x", "turned_x"),
        ("square_x", "square_turned"),
    ),
)
@pytest.mark.parametrize("branch", [0, 1])
def test_a_sum_over_axes_of_no_branch_that_ran_is_of_another_mesh(name, run, branch, compare):
    try:
        report = compare(name, run, branch)
    except FlintError as error:
        assert "another mesh" in str(error)
    else:
        assert not report.ok
        assert CHOSEN not in report.explained


@pytest.mark.parametrize("name", quick(xla_conditionals.typed, next(iter(xla_conditionals.typed))))
def test_a_branch_of_another_type_than_captured_is_compared_as_the_program_has_it(name, compare):
    report = compare(name, name)
    assert report.ok, report.verdict
    # Two products are captured of the dearer branch, which is not executed.
    chosen = name.endswith("1")
    assert report.classes[OpClass.GEMM].explained_captured == (0 if chosen else 2 * 8)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "ranks"), quick_rows([("behind", 8), ("within", 2)], ("within", 2))
)
def test_what_data_chose_of_several_programs_of_one_module_is_reported(name, ranks, compare):
    report = compare(name, name)
    assert report.ok, report.verdict
    assert report.explained == {NOT_CHOSEN: 2 * ranks, CHOSEN: 2 * ranks}
    report = compare(f"{name}_changed", name)
    assert report.failures == 2 * 2 * ranks
    assert CHOSEN not in report.explained


def test_what_data_chose_is_told_of_a_saved_capture(tmp_path, runs):
    xla_conditionals.within.capture().save(tmp_path)
    report = validate(flint.load(tmp_path), [runs.profile("within")])
    assert report.ok, report.verdict
    assert CHOSEN in report.explained


@pytest.mark.parametrize("branch", [0, 1])
def test_axes_of_one_size_agree_in_their_own_order(branch, compare):
    assert compare("square_x", "square_x", branch).ok
    assert compare("square_turned", "square_turned", branch).ok
