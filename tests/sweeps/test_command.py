"""``flint sweep`` as a user runs it."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flint.cli import main
from tests.support.children import HUNG
from tests.support.command_line import flint_here
from tests.support.command_line import flint_with_jax as flint

ROOT = Path(__file__).parents[2]
STEPS = ROOT / "tests" / "frontends" / "jax" / "steps.py"

#: Every capture leaves a mark, because it calls the setup.
COUNTED = """

def counted_setup(mesh):
    with open(__file__ + ".captures", "a") as log:
        log.write(f"{tuple(mesh.shape.values())}\\n")
    return mlp_setup(mesh)


def rough_setup(mesh):
    import os, signal, time
    from pathlib import Path
    if tuple(mesh.shape.values()) == (2, 2) and os.environ.get("HOW") == "killed":
        from flint.host.writing import replacing_folder
        with replacing_folder(Path("out/workloads/half")):
            os.kill(os.getpid(), signal.SIGKILL)
    if tuple(mesh.shape.values()) == (2, 2) and os.environ.get("HOW") == "sleeps":
        with open(__file__ + ".sleeps", "w") as mark:
            mark.write(str(os.getpid()))
        time.sleep(600)
    return mlp_setup(mesh)


@flint.capture(mesh=(4, 2), axes=("data", "model"), setup=mlp_setup)
def mlp_loss_only(params, batch):
    return jax.tree.map(lambda p: p - 0.1, params), mlp_loss(params, batch)
"""


@pytest.fixture
def step(tmp_path):
    file = tmp_path / "steps.py"
    file.write_text(STEPS.read_text() + COUNTED)
    return file


def sweep(step, *options, meshes=("4,2", "2,2"), systems=("dgx-h100", "gb200-nvl72"), output="out"):
    grid = [part for mesh in meshes for part in ("--mesh", mesh)]
    clusters = [part for system in systems for part in ("--system", system)]
    return flint(
        "sweep", f"{step}:mlp", *grid, *clusters, "--setup", "counted_setup", "--jobs", 2,
        "-o", output, "--json", *options, cwd=step.parent,
    )  # fmt: skip


def rows_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"]


def captures(step):
    return Path(f"{step}.captures").read_text().splitlines()


@pytest.mark.thorough
def test_rows_are_what_simulate_says_of_the_same_folder(step):
    rows = rows_of(sweep(step))
    assert [(row["mesh"], row["system"]) for row in rows] == [
        ("4,2", "dgx-h100"), ("4,2", "gb200-nvl72"), ("2,2", "dgx-h100"), ("2,2", "gb200-nvl72"),
    ]  # fmt: skip
    for row in (rows[0], rows[3]):
        done = flint_here(
            "simulate", row["workload"], "--system", row["system"], "--json", cwd=step.parent
        )
        alone = json.loads(done.stdout)
        for name in ("step_seconds", "exposed_communication_seconds", "peak_memory_bytes", "mfu"):
            assert row[name] == alone[name]
        assert row["device_seconds"] == row["step_seconds"] * row["ranks"]
    with (step.parent / "out" / "results.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [float(row["step_seconds"]) for row in written] == [row["step_seconds"] for row in rows]


@pytest.mark.thorough
def test_a_capture_is_the_one_that_the_command_makes(step):
    [row] = rows_of(sweep(step, meshes=("4,2",), systems=("dgx-h100",)))
    command = ("capture", f"{step}:mlp", "--mesh", "4,2", "--ranks", "0", "-o", "alone")
    assert flint(*command, cwd=step.parent).returncode == 0
    graph = "programs/main.graph.npz"  # the module has the places of all callers
    swept = (step.parent / row["workload"] / graph).read_bytes()
    assert swept == (step.parent / "alone" / graph).read_bytes()


@pytest.mark.thorough
def test_a_mesh_is_captured_once_and_never_again(step):
    first = rows_of(sweep(step))
    seen = captures(step)
    assert sorted(set(seen)) == ["(2, 2)", "(4, 2)"]
    assert rows_of(sweep(step)) == first
    assert captures(step) == seen


@pytest.mark.thorough
def test_a_sweep_continues_where_it_was_interrupted(step):
    first = rows_of(sweep(step, meshes=("4,2",), systems=("dgx-h100",)))
    seen = captures(step)
    [result] = (step.parent / "out" / "points").iterdir()
    result.write_text('{"step_sec')  # as a full disk would leave it
    rows = rows_of(sweep(step, meshes=("4,2",)))
    assert captures(step) == seen
    assert rows[0] == first[0] | {"pareto": rows[0]["pareto"]}
    assert rows[1]["system"] == "gb200-nvl72"


@pytest.mark.thorough
def test_a_change_of_an_imported_file_is_a_new_capture(step):
    (step.parent / "sizes.py").write_text("WIDTH = 64\n")
    step.write_text(step.read_text() + "\nimport sizes\n")
    before = rows_of(sweep(step, meshes=("2,2",), systems=("dgx-h100",)))
    count = len(captures(step))
    (step.parent / "sizes.py").write_text("WIDTH = 65\n")
    after = rows_of(sweep(step, meshes=("2,2",), systems=("dgx-h100",)))
    assert len(captures(step)) > count
    assert after[0]["workload"] != before[0]["workload"]


def test_a_capture_that_fails_or_is_killed_is_a_row_with_its_reason(step):
    rows = rows_of(
        flint(
            "sweep", f"{step}:mlp", "--mesh", "2,2", "--mesh", "4,2", "--mesh", "5,3",
            "--setup", "rough_setup", "-o", "out", "--json", cwd=step.parent, HOW="killed",
        )
    )  # fmt: skip
    assert "SIGKILL" in rows[0]["error"] and rows[1]["error"] is None
    assert "data of 5 devices does not divide" in rows[2]["error"]
    assert rows[2]["step_seconds"] is None


@pytest.mark.thorough
def test_a_capture_that_is_killed_while_it_writes_leaves_nothing(step):
    """``make torture`` 775: the sweep is told to end and kills it."""
    flint(
        "sweep", f"{step}:mlp", "--mesh", "2,2", "--setup", "rough_setup", "-o", "out",
        cwd=step.parent, HOW="killed",
    )  # fmt: skip
    assert list((step.parent / "out" / "workloads").iterdir()) == []


def test_ctrl_c_ends_all_processes_and_keeps_what_is_done(step):
    command = [
        sys.executable, "-m", "flint", "sweep", f"{step}:mlp", "--mesh", "2,2", "--mesh", "4,2",
        "--setup", "rough_setup", "--jobs", "2", "-o", "out", "--json",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(
        command, cwd=step.parent, env={**environment, "HOW": "sleeps"}, text=True,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    mark, points = Path(f"{step}.sleeps"), step.parent / "out" / "points"
    assert happens(lambda: mark.is_file() and mark.read_text() and any(points.glob("*.json")))
    asleep = int(mark.read_text())
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=HUNG)
    assert running.returncode == 130
    assert "1 of 2 points are done and kept" in said and "Traceback" not in said
    assert happens(lambda: not alive(asleep))
    done = flint(*command[3:], cwd=step.parent)
    assert [row["error"] for row in rows_of(done)] == [None, None]


def happens(what, seconds=120):
    """Whether it becomes true in that time."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def alive(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.thorough
def test_each_pass_is_a_separate_point(step):
    options = ("--pass", "none", "--pass", "scale:factor=0.5", "--pass", "scale+scale:factor=0.25")
    rows = rows_of(sweep(step, *options, meshes=("2,2",), systems=("dgx-h100",)))
    assert [row["pass"] for row in rows] == [None, "scale:factor=0.5", "scale+scale:factor=0.25"]
    assert rows[0]["workload"] == rows[1]["workload"] == rows[2]["workload"]
    alone = flint(
        "simulate", rows[1]["workload"], "--pass", "scale:factor=0.5", "--json", cwd=step.parent
    )
    assert rows[1]["step_seconds"] == json.loads(alone.stdout)["step_seconds"]
    assert rows[1]["step_seconds"] != rows[0]["step_seconds"]


@pytest.mark.thorough
def test_several_steps_are_swept_together(step):
    done = flint(
        "sweep", f"{step}:mlp", f"{step}:mlp_loss_only", "--mesh", "2,2", "-o", "out.csv",
        "--json", cwd=step.parent,
    )  # fmt: skip
    rows = rows_of(done)
    assert [row["step"].rpartition(":")[2] for row in rows] == ["mlp", "mlp_loss_only"]
    assert rows[0]["flops"] != rows[1]["flops"]
    with (step.parent / "out.csv").open(newline="") as file:
        assert [row["step"] for row in csv.DictReader(file)] == [row["step"] for row in rows]


@pytest.mark.thorough
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
        (("--algorithm", "foo"), "unknown algorithm 'foo'"),
        (("--jobs", "0"), "--jobs 0"),
        (("--pass", "hoists"), "hoists"),
        (("--level", "logical"), "--level logical"),
        (("--level", "optimized"), "--target NAME"),
        (("--target", "h1000"), "unknown target 'h1000'"),
        (("--ray", "there", "--jobs", "-1"), "--jobs -1"),
        (("--trip-count", "many"), "--trip-count 'many'"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(step, capsys, options, reason):
    command = ["sweep", f"{step}:mlp", "--mesh", "4,2", "-o", str(step.parent / "out"), *options]
    with pytest.raises(SystemExit) as stopped:
        main([*command, "--setup", "counted_setup"])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert reason in said and said.count("\n") == 1
    assert not (step.parent / "out").exists() and not Path(f"{step}.captures").exists()


@pytest.mark.thorough
def test_a_file_is_written_next_to_the_folder_of_its_name(step):
    done = sweep(step, meshes=("2,2",), systems=("dgx-h100",), output="best.html")
    [row] = rows_of(done)
    page = (step.parent / "best.html").read_text()
    assert f'title="{row["peak_memory_bytes"]}"' in page
    assert (step.parent / "best" / "results.json").is_file()
    assert not re.search("https?:", page)  # it needs nothing else


def test_a_folder_with_something_else_is_left_alone(step):
    (step.parent / "out").mkdir()
    (step.parent / "out" / "results.csv").write_text("mine")
    done = sweep(step)
    assert done.returncode == 2 and "not a sweep's folder" in done.stderr
    assert (step.parent / "out" / "results.csv").read_text() == "mine"
