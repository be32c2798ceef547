"""``flint sweep`` of workload folders that exist already."""

from __future__ import annotations

import json

from tests.support.command_line import flint_here


def test_a_workload_folder_is_simulated_and_left_as_it_is(two_programs, tmp_path):
    two_programs.save(tmp_path / "given")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "given").rglob("*")}
    systems = ("--system", "dgx-h100", "--system", "gb200-nvl72")
    for options in ((), ("--fresh",)):
        done = flint_here("sweep", "given", *systems, *options, "-o", "out", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["rows"]
        assert [(row["step"], row["system"]) for row in rows] == [
            ("given", "dgx-h100"), ("given", "gb200-nvl72"),
        ]  # fmt: skip
        for row in rows:
            alone = flint_here(
                "simulate", "given", "--system", row["system"], "--json", cwd=tmp_path
            )
            assert row["step_seconds"] == json.loads(alone.stdout)["step_seconds"]
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "given").rglob("*")} == before


def test_options_of_captures_are_refused_for_folders_alone(two_programs, tmp_path):
    two_programs.save(tmp_path / "given")
    for options in (("--mesh", "16"), ("--level", "optimized", "--target", "h100")):
        done = flint_here("sweep", "given", *options, "-o", "out", cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr == (
            f"flint: {' '.join(options) if len(options) > 2 else '--mesh'} is for steps; "
            "a workload folder is captured already\n"
        )


def test_of_a_sweeps_folder_a_capture_is_asked_for(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "sweep.json").write_text("{}")
    done = flint_here("sweep", "old", "-o", "out", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "flint: old is a sweep's folder: its captures are old/workloads/*\n",
    )
