"""What a step rounds to bfloat16, and the CPU may compute and send in float32, was rounded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flint.validation.validating import validate
from tests.capture.comparing import child_environment
from tests.validation import xla_rounded

pytestmark = pytest.mark.xdist_group("validation")

STEPS = ("product", "exact", "second", "repeated", "sum", "gather", "gradient")
WIDTHS = ("narrow", "wide")


@pytest.fixture(scope="module")
def compare(tmp_path_factory):
    """Report of a step's capture against the run of a step."""
    folder = tmp_path_factory.mktemp("profiles")
    names = [f"{name}_{width}" for name in STEPS for width in WIDTHS]
    places = [f"{name}=tests.validation.xla_rounded:{name}" for name in names]
    run = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "profiling.py"), str(folder), *places],
        capture_output=True, text=True, env=child_environment(), timeout=600, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    captures = {}

    def report(name, run):
        if name not in captures:
            captures[name] = getattr(xla_rounded, name).capture()
        return validate(captures[name], [folder / run])

    return report


def counted(report):
    return "\n".join(f"{item.what} {item.op}" for item in report.differences if item.counts)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_agrees_with_its_own_run(name, width, compare):
    report = compare(f"{name}_{width}", f"{name}_{width}")
    assert report.ok, counted(report)


@pytest.mark.parametrize("name", STEPS)
def test_what_was_not_rounded_is_not_what_is_rounded_in_the_capture(name, compare):
    report = compare(f"{name}_narrow", f"{name}_wide")
    assert not report.ok
    assert "never narrower" in counted(report)


@pytest.mark.parametrize("name", STEPS)
def test_what_was_rounded_is_not_what_is_never_rounded_in_the_capture(name, compare):
    report = compare(f"{name}_wide", f"{name}_narrow")
    assert not report.ok
