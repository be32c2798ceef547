"""What a step rounds to bfloat16, and the CPU may compute and send in float32, was rounded."""

from __future__ import annotations

import pytest

from tests.support.shared import quick
from tests.validation import xla_rounded
from tests.validation.xla_runs import Runs, named

pytestmark = pytest.mark.xdist_group("validation")

STEPS = ("product", "exact", "second", "repeated", "sum", "gather", "gradient")
WIDTHS = ("narrow", "wide")


@pytest.fixture(scope="module")
def compare(host_runs):
    """Report of a step's capture against the run of a step."""
    return Runs(host_runs, xla_rounded).compare


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", quick(STEPS, "product", "sum"))
def test_a_step_agrees_with_its_own_run(name, width, compare):
    report = compare(f"{name}_{width}", f"{name}_{width}")
    assert report.ok, named(report)


@pytest.mark.parametrize("name", quick(STEPS, "product", "sum"))
def test_what_was_not_rounded_is_not_what_is_rounded_in_the_capture(name, compare):
    report = compare(f"{name}_narrow", f"{name}_wide")
    assert not report.ok
    assert "never narrower" in named(report)


@pytest.mark.parametrize("name", quick(STEPS, "product", "sum"))
def test_what_was_rounded_is_not_what_is_never_rounded_in_the_capture(name, compare):
    report = compare(f"{name}_wide", f"{name}_narrow")
    assert not report.ok
