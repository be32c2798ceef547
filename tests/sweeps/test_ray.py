"""Sweeps on Ray, where it is installed: a local one is started for each."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from flint.sweeps import packing
from tests.sweeps.test_command import STEPS, flint, happens

needs_ray = pytest.mark.skipif(
    not any((Path(part) / "ray" / "__init__.py").is_file() for part in sys.path),
    reason="the extra `cluster` is not installed",
)


@pytest.fixture
def step(tmp_path):
    file = tmp_path / "steps.py"
    file.write_text(STEPS.read_text() + "\nimport sizes\n")
    (tmp_path / "sizes.py").write_text("WIDTH = 64\n")
    return file


def sweep(step, *options, meshes=("4,2", "5,3"), **variables):
    grid = [part for mesh in meshes for part in ("--mesh", mesh)]
    return flint(
        "sweep", f"{step}:mlp", *grid, "--jobs", 2, "--json", *options, cwd=step.parent,
        **variables,
    )  # fmt: skip


@needs_ray
@pytest.mark.xdist_group("ray")
def test_rows_are_those_of_processes_and_a_second_run_resumes(step):
    here = json.loads(sweep(step, "-o", "here").stdout)["rows"]
    place = step.parent / "temporary"
    place.mkdir()
    # Ray's own place has sockets, whose names must be short.
    variables = {"TMPDIR": str(place), "RAY_TMPDIR": tempfile.gettempdir()}
    done = sweep(step, "-o", "there", "--ray", "local", **variables)
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)["rows"]
    for row in (*here, *there):
        row["workload"] = None  # the folder's name
    assert there == here
    assert happens(lambda: not any(place.iterdir()))  # Ray kills its processes and their children
    assert there[0]["error"] is None and "does not divide" in there[1]["error"]
    stored = sorted((step.parent / "there" / "points").iterdir())
    times = [file.stat().st_mtime_ns for file in stored]
    again = sweep(step, "-o", "there", meshes=("4,2",))  # without Ray: the same folder
    assert json.loads(again.stdout)["rows"][0]["step_seconds"] == there[0]["step_seconds"]
    assert [file.stat().st_mtime_ns for file in stored] == times


@needs_ray
def test_no_answer_at_the_address_is_one_line(step):
    done = sweep(step, "-o", "out", "--ray", "127.0.0.1:1")
    assert done.returncode == 1
    assert "--ray 127.0.0.1:1: no answer" in done.stderr
    assert done.stderr.count("\n") == 1 and not (step.parent / "out").exists()


def test_without_ray_it_says_what_to_install(step):
    hidden = step.parent / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'ray' else found(name, *more)\n"
    )
    root = Path(__file__).parents[2]
    done = flint(
        "sweep", f"{step}:mlp", "--mesh", "2,2", "-o", "out", "--ray", "local", cwd=step.parent,
        PYTHONPATH=f"{hidden}{os.pathsep}{root}",
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install 'flint-workload[cluster]'" in done.stderr and done.stderr.count("\n") == 1


def test_a_step_travels_with_what_it_imports_and_nothing_else(step, tmp_path):
    shipped, files = packing.ship(f"{step}:mlp")
    packing.unpack(files, tmp_path / "there")
    found = sorted(
        str(f.relative_to(tmp_path / "there")) for f in (tmp_path / "there").rglob("*.py")
    )
    assert found == ["0/sizes.py", "0/steps.py"]
    assert shipped.named(tmp_path / "there") == f"{tmp_path}/there/0/steps.py:mlp"
    assert "jax" in shipped.modules


def test_a_folder_comes_back_as_it_was(tmp_path):
    (tmp_path / "one" / "programs").mkdir(parents=True)
    (tmp_path / "one" / "et").mkdir()
    for name in ("workload.json", "programs/main.graph.npz", "et/trace.0.et"):
        (tmp_path / "one" / name).write_bytes(os.urandom(1000))
    packing.unpack(packing.pack(tmp_path / "one", ("et",)), tmp_path / "two")
    for name in ("workload.json", "programs/main.graph.npz"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert not (tmp_path / "two" / "et").exists()
