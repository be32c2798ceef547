"""Sweeps simulated by another engine: a stand-in for the binary, as for one simulation."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.sweeps.test_command import ROOT, STEPS, flint

STAND_IN = ROOT / "tests" / "simulation" / "astra_sim_stand_in.py"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "steps.py").write_text(STEPS.read_text())
    binary = tmp_path / "AstraSim_Analytical_Congestion_Unaware"
    binary.write_text(
        f'#!/bin/sh\necho run >> "{tmp_path}/runs"\n'
        f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -P "{STAND_IN}" "$@"\n'
    )
    binary.chmod(0o755)
    return tmp_path


def sweep(place, *options, **variables):
    return flint(
        "sweep", "steps.py:mlp", "--mesh", "4,2", "--mesh", "2,2", "--setup", "mlp_setup",
        "-o", "out", "--json", *options, cwd=place, STAND_IN="ok", **variables,
    )  # fmt: skip


@pytest.mark.thorough
def test_a_row_is_what_simulate_says_with_the_same_engine(place):
    binary = place / "AstraSim_Analytical_Congestion_Unaware"
    engine = ("--engine", "astra-sim", "--astra-sim", binary.name)
    done = sweep(place, *engine)
    assert done.returncode == 0, done.stderr
    for row in json.loads(done.stdout)["rows"]:
        alone = flint(
            "simulate", row["workload"], "--system", row["system"], *engine,
            "--granularity", "kernel", "--json", cwd=place, STAND_IN="ok",
        )  # fmt: skip
        said = json.loads(alone.stdout)
        assert said["engine"] == "astra-sim"
        assert row["step_seconds"] == said["step_seconds"]
        assert row["exposed_communication_seconds"] == said["exposed_communication_seconds"]


@pytest.mark.thorough
def test_another_build_of_the_binary_is_run_again_and_the_same_is_not(place):
    binary = place / "AstraSim_Analytical_Congestion_Unaware"

    def runs():
        done = sweep(place, "--engine", "astra-sim", FLINT_ASTRA_SIM=str(binary))
        assert done.returncode == 0, done.stderr
        return (place / "runs").read_text().count("run")

    assert [runs(), runs()] == [2, 2]
    binary.write_text(binary.read_text() + "\n")
    assert runs() == 4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--astra-sim", "x"), "--astra-sim is for --engine astra-sim"),
        (("--engine", "astra-sim", "--algorithm", "ring"), "--algorithm is for --engine embedded"),
        (("--engine", "nope"), "unknown engine 'nope'"),
    ],
)
def test_options_of_another_engine_are_refused(place, options, reason):
    done = sweep(place, *options)
    assert done.returncode == 2
    assert reason in done.stderr
    assert not Path(place / "out").exists()
