"""Steps on the same arguments that differ in what they make of them, as they ran."""

from __future__ import annotations

from itertools import permutations

import pytest

from flint.validation.matching.form_reasons import WIDENED_INTEGERS
from tests.support.shared import quick, quick_rows
from tests.validation import xla_windows
from tests.validation.xla_runs import Runs, named

pytestmark = pytest.mark.xdist_group("validation")

CONVOLUTIONS = ("plain", "strided", "valid", "dilated", "spread", "grouped", "each")
INTEGERS = ("unsigned", "signed", "whole")
RUN = (*CONVOLUTIONS, *INTEGERS, "best_8", "best_4", "forth", "back")


@pytest.fixture(scope="module")
def compare(host_runs):
    """Report of a step's capture against the run of a step."""
    return Runs(host_runs, xla_windows).compare


@pytest.mark.parametrize("name", quick(RUN, "plain", "strided", "signed"))
def test_a_step_agrees_with_its_own_run(name, compare):
    report = compare(name, name)
    assert report.ok, named(report)


@pytest.mark.parametrize("name", quick(CONVOLUTIONS[1:], "strided"))
def test_a_convolution_over_other_windows_is_another_one(name, compare):
    assert compare("plain", name).failures >= 8
    report = compare(name, "plain")
    assert report.failures >= 8
    # 2 images per device of 16 by 16, each window of 3 by 3 by 8 numbers but for those outside of
    # the edges: (3 * 16 - 2) of each row and column, and 16 features; a multiplication and a sum.
    flops = 2 * 2 * (3 * 16 - 2) ** 2 * 8 * 16
    assert f"to {2 * 16 * 16 * 16:,} numbers in {flops:,} FLOPs" in named(report)


def test_a_program_returns_what_its_capture_does(compare):
    report = compare("best_4", "best_8")
    assert report.failures == 2 * 8
    assert "not executed 1 x a result 8x4xf32\n" in named(report)
    assert "not captured 1 x a result 8x8xf32\n" in named(report)


def test_a_product_of_narrow_integers_may_run_as_one_of_wide_ones(compare):
    assert compare("unsigned", "unsigned").explained == {WIDENED_INTEGERS: 8}


@pytest.mark.parametrize(
    ("name", "run"), quick_rows(permutations(INTEGERS, 2), ("signed", "whole"))
)
def test_a_product_of_other_integers_is_another_one(name, run, compare):
    assert compare(name, run).failures == 2 * 8


@pytest.mark.parametrize(
    ("name", "run"), quick_rows([("forth", "back"), ("back", "forth")], ("forth", "back"))
)
def test_a_ring_that_turns_the_other_way_is_another_one(name, run, compare):
    report = compare(name, run)
    assert not report.ok
    assert "in another pass collective_permute 1,024 bytes f32" in named(report)
