"""Blind errors by cause: each run counts once, and each cause is one of runs that were scored."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import causes


def test_every_cause_is_that_of_runs_that_were_scored() -> None:
    found = causes.errors()
    names = [name for some in found.values() for name in some]
    assert len(names) == len(set(names)) == 244
    for beginning, cause in causes.causes().items():
        assert any(name.startswith(beginning) for name in found[cause]), beginning
