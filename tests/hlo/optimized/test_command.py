"""``flint convert`` and ``flint check`` on optimised modules, as a user runs them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from flint.cli import application
from tests.hlo.optimized.single import FOLDER


def run(*arguments):
    return CliRunner().invoke(application(), [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("name", "mesh"),
    [("gpu_llama", "4,2"), ("gpu_moe", "2,4"), ("tpu_llama", "4,2"), ("cpu_llama", "4,2")],
)
def test_traces_of_a_compiled_step_pass_the_check(name, mesh, tmp_path):
    converted = run("convert", FOLDER / f"{name}.hlo.pb.gz", "--mesh", mesh, "-o", tmp_path / "out")
    assert converted.exit_code == 0, converted.output
    assert "order compiled" in converted.output
    written = json.loads((tmp_path / "out" / "workload.json").read_text())
    assert (written["level"], written["order"]) == ("optimized", "compiled")
    checked = run("check", tmp_path / "out")
    assert checked.exit_code == 0, checked.output
    assert "0 errors, 0 warnings" in checked.output


def test_ranks_that_receive_and_send_at_once_do_not_wait_for_each_other(tmp_path):
    module = FOLDER / "gpu_pipeline_send_recv.hlo.pb.gz"
    out = tmp_path / "out"
    assert run("convert", module, "--mesh", "2,2,2", "-o", out).exit_code == 0
    checked = run("check", out)
    assert checked.exit_code == 0, checked.output
    assert ": 0 errors" in checked.output


def test_a_loop_without_a_trip_count_asks_for_one(tmp_path):
    module = FOLDER / "gpu_dynamic_loop.hlo.pb.gz"
    assert "--trip-count" in str(run("convert", module, "-o", tmp_path / "out").exception)
    assert run("convert", module, "-o", tmp_path / "out", "--trip-count", 3).exit_code == 0
