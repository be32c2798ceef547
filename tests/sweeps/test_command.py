"""``flint sweep`` as a user runs it."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STEPS = ROOT / "tests" / "capture" / "steps.py"

#: Every capture leaves a mark, because it calls the setup.
COUNTED = """

def counted_setup(mesh):
    with open(__file__ + ".captures", "a") as log:
        log.write(f"{tuple(mesh.shape.values())}\\n")
    return mlp_setup(mesh)
"""


def flint(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "flint", *map(str, arguments)],
        cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture
def step(tmp_path):
    file = tmp_path / "steps.py"
    file.write_text(STEPS.read_text() + COUNTED)
    return file


def sweep(step, *options, meshes=("4,2", "2,2"), systems=("dgx-h100", "gb200-nvl72")):
    grid = [part for mesh in meshes for part in ("--mesh", mesh)]
    clusters = [part for system in systems for part in ("--system", system)]
    return flint(
        "sweep", f"{step}:mlp", *grid, *clusters, "--setup", "counted_setup", "--jobs", 2,
        "-o", "out", "--json", *options, cwd=step.parent,
    )  # fmt: skip


def rows_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"]


def captures(step):
    return Path(f"{step}.captures").read_text().splitlines()


def test_rows_are_what_simulate_says_of_the_same_folder(step):
    rows = rows_of(sweep(step))
    assert [(row["mesh"], row["system"]) for row in rows] == [
        ("4,2", "dgx-h100"), ("4,2", "gb200-nvl72"), ("2,2", "dgx-h100"), ("2,2", "gb200-nvl72"),
    ]  # fmt: skip
    for row in (rows[0], rows[3]):
        done = flint(
            "simulate", row["workload"], "--system", row["system"], "--json", cwd=step.parent
        )
        alone = json.loads(done.stdout)
        for name in ("step_seconds", "exposed_communication_seconds", "peak_memory_bytes", "mfu"):
            assert row[name] == alone[name]
        assert row["device_seconds"] == row["step_seconds"] * row["ranks"]
    with (step.parent / "out" / "results.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [float(row["step_seconds"]) for row in written] == [row["step_seconds"] for row in rows]


def test_a_mesh_is_captured_once_and_never_again(step):
    first = rows_of(sweep(step))
    seen = captures(step)
    assert sorted(set(seen)) == ["(2, 2)", "(4, 2)"]
    assert rows_of(sweep(step)) == first
    assert captures(step) == seen


def test_a_sweep_goes_on_where_it_was_interrupted(step):
    first = rows_of(sweep(step, meshes=("4,2",), systems=("dgx-h100",)))
    seen = captures(step)
    [result] = (step.parent / "out" / "points").iterdir()
    result.write_text('{"step_sec')  # as a full disk would leave it
    rows = rows_of(sweep(step, meshes=("4,2",)))
    assert captures(step) == seen
    assert rows[0] == first[0] | {"pareto": rows[0]["pareto"]}
    assert rows[1]["system"] == "gb200-nvl72"


def test_a_change_of_an_imported_file_is_a_new_capture(step):
    (step.parent / "sizes.py").write_text("WIDTH = 64\n")
    step.write_text(step.read_text() + "\nimport sizes\n")
    before = rows_of(sweep(step, meshes=("2,2",), systems=("dgx-h100",)))
    count = len(captures(step))
    (step.parent / "sizes.py").write_text("WIDTH = 65\n")
    after = rows_of(sweep(step, meshes=("2,2",), systems=("dgx-h100",)))
    assert len(captures(step)) > count
    assert after[0]["workload"] != before[0]["workload"]


def test_a_mesh_that_does_not_divide_is_a_row_with_its_reason(step):
    rows = rows_of(sweep(step, meshes=("5,3", "2,2"), systems=("dgx-h100",)))
    assert "data of 5 devices does not divide" in rows[0]["error"]
    assert rows[0]["step_seconds"] is None and rows[1]["error"] is None


def test_only_a_sweep_without_any_result_fails(step):
    done = sweep(step, meshes=("5,3",), systems=("dgx-h100",))
    assert done.returncode == 1
    assert "does not divide" in done.stderr and "Traceback" not in done.stderr
    assert json.loads(done.stdout)["rows"][0]["error"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--system", "dgx-h1000"), "dgx-h1000"),
        (("--mesh", "4,y"), "--mesh '4,y'"),
        (("--axes", "data"), "names are"),
        (("--granularity", "atom"), "atom"),
        (("--jobs", "0"), "--jobs 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(step, options, reason):
    done = sweep(step, *options)
    assert done.returncode == 2
    assert reason in done.stderr and done.stderr.count("\n") == 1
    assert not (step.parent / "out").exists() and not Path(f"{step}.captures").exists()


def test_a_file_is_written_beside_the_folder_of_its_name(step):
    done = sweep(step, "-o", "best.html", meshes=("2,2",), systems=("dgx-h100",))
    [row] = rows_of(done)
    page = (step.parent / "best.html").read_text()
    assert f"<td>{row['peak_memory_bytes']}</td>" in page
    assert (step.parent / "best" / "results.json").is_file()
    assert "http" not in page  # it needs nothing else


def test_a_folder_with_something_else_is_left_alone(step):
    (step.parent / "out").mkdir()
    (step.parent / "out" / "results.csv").write_text("mine")
    done = sweep(step)
    assert done.returncode == 2 and "no sweep's folder" in done.stderr
    assert (step.parent / "out" / "results.csv").read_text() == "mine"
