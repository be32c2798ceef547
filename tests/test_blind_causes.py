"""Blind errors by cause: each run counts once, and each cause is one of runs that were scored."""

from __future__ import annotations

import csv
import re
import statistics
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import causes
from page import PAGE


def test_every_cause_is_that_of_runs_that_were_scored() -> None:
    found = causes.errors()
    names = [name for some in found.values() for name in some]
    assert len(names) == len(set(names)) == 244
    for beginning, cause in causes.causes().items():
        assert any(name.startswith(beginning) for name in found[cause]), beginning


def test_a_row_has_its_sealed_error_and_that_of_its_last_simulation() -> None:
    """Errors worked out here: tokens per second and device, of which fewer are a longer step."""

    def figure(file: str) -> float:
        with (causes.HERE / file).open(newline="", encoding="utf-8") as rows:
            found = {row["id"]: row["value"] for row in csv.DictReader(rows)}
        return float(found["ao-h100-8b-bf16"])

    errors = {name: pair for some in causes.errors().values() for name, pair in some.items()}
    expected = [
        figure("measured.csv") / figure(file) - 1 for file in ("predictions.csv", "mended.csv")
    ]
    assert errors["ao-h100-8b-bf16"] == pytest.approx(expected, rel=1e-3)
    line = causes.line("one", [(0.25, -0.1)])
    assert line == "| one | 1 | +25.0% | 25.0% | 25.0% | -10.0% | 10.0% | 10.0% |"


def test_the_page_begins_with_the_errors_of_all_runs() -> None:
    """As sealed, and as last simulated: medians of sizes, and how many are beyond 30%."""
    text = PAGE.read_text(encoding="utf-8")
    every = [pair for some in causes.errors().values() for pair in some.values()]
    rows = re.findall(
        r"^\| (?:as they|with the) .* \| ([\d.]+)% \| [\d.]+% \| (\d+) \|$", text, re.M
    )
    for (median, beyond), errors in zip(rows, zip(*every, strict=True), strict=True):
        sizes = [abs(error) for error in errors]
        assert float(median) == pytest.approx(100 * statistics.median(sizes), abs=0.051)
        assert int(beyond) == sum(size > 0.3 for size in sizes)
