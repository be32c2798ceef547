"""Unmodified programs: the step that is captured is the one that really runs.

Each program of the table runs for real on gloo processes, in which a dispatch mode counts the
collectives (kind, ranks of the group, calls, bytes that a rank gives) and the FLOPs of matrix
products of its third step.  On the GPU that is not there, attention is one kernel as it is on the
CPU: neither counts.
"""

from __future__ import annotations

import pytest

from tests.programs import comparing, results
from tests.programs.packages import PROGRAMS


@pytest.mark.thorough
@pytest.mark.parametrize("program", [pytest.param(item, id=item.name) for item in PROGRAMS])
def test_the_captured_step_is_the_one_that_runs(tmp_path, program):
    if not results.is_installed(program.package):
        pytest.skip(f"{program.package} is not in this environment: make test-programs")
    found, run = comparing.both(program, tmp_path)
    if program.differs:
        assert found != run, f"{program.name} is equal now: take `differs` out of the table"
        results.record(program.package, program.words, found, program.differs)
        pytest.xfail(program.differs)
    assert found == run
    results.record(program.package, program.words, found)


def test_the_readmes_table_is_that_of_the_results():
    page = (results.ROOT / "README.md").read_text(encoding="utf-8")
    assert results.shown(page, results.kept()) == page
