"""``flint validate`` as a user runs it: a process, its tables, exit status, one line of error."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.children import HUNG
from tests.validation.test_jax_runs import changed

pytestmark = pytest.mark.xdist_group("validation")


@pytest.fixture(scope="module")
def folders(captures, tmp_path_factory):
    """The capture of a step, and the same with one collective changed."""
    found = {}
    for name, workload in (
        ("right", captures("mlp")),
        ("wrong", changed(captures("mlp"), lambda item: {"kind": "all_reduce"})),
    ):
        found[name] = tmp_path_factory.mktemp(name) / "out"
        workload.save_programs(found[name])
    return found


def flint(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "flint", "validate", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=HUNG,
        check=False,
    )


def test_tables_and_the_verdict_in_the_last_line(folders, profiles):
    run = flint(folders["right"], "--trace", profiles["mlp"])
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    gathers, times = (line.split() for line in lines if line.strip().startswith("all-gather "))
    # Three per device, on 8 devices: captured, executed, matched.
    assert gathers[1:4] == ["24", "24", "24"]
    assert float(times[1]) == float(times[3]) > 0  # measured, all of it of matched ops
    assert lines[-1].startswith("agrees: all 88 collectives")


@pytest.mark.thorough
def test_exit_status_1_and_where_it_differs(folders, profiles):
    run = flint(folders["wrong"], "--trace", profiles["mlp"])
    assert run.returncode == 1
    assert "steps.py:" in run.stdout
    assert run.stdout.splitlines()[-1].startswith("differs: 16 ops")


def test_json_and_html_say_the_same(folders, profiles, tmp_path):
    html = tmp_path / "report.html"
    run = flint(folders["wrong"], "--trace", profiles["mlp"], "--json", "--html", html)
    assert run.returncode == 1
    document = json.loads(run.stdout)
    assert (document["ok"], document["failures"]) == (False, 16)
    assert document["classes"]["all-gather"]["executed"] == 24
    page = html.read_text()
    assert document["verdict"] in page
    assert "<script" not in page
    assert list(tmp_path.iterdir()) == [html]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--trace", "absent.json"), 2, "no such file"),
        ((), 2, "--trace"),
        (("--trace", __file__), 1, "not a trace of a known format"),
    ],
)
def test_errors_are_one_line(arguments, status, said, folders):
    run = flint(folders["right"], *arguments)
    assert run.returncode == status
    assert said in run.stderr
    assert "Traceback" not in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["mlp", "ring"])
def test_our_own_execution_traces_validate(name, captures, tmp_path):
    out = tmp_path / "out"
    captures(name).save(out, granularity="op", ranks="0-1")
    run = flint(out, "--trace", out / "et/trace.0.et", "--trace", out / "et/trace.1.et")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2 of 8 ranks compared" in run.stdout
