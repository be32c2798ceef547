"""Options that mean nothing for what is given are refused, not passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_convert import flint

TRACE = Path(__file__).parents[1] / "data" / "traces" / "resnet50_ddp_nccl_rank0.json.gz"
MODULE = TRACE.parents[1] / "stablehlo/pipeline_ppermute_8x8.mlirbc"
STEP = """
import jax
def setup(mesh):
    return (jax.ShapeDtypeStruct((8, 8), "float32"),)
def step(x):
    return x.sum()
"""
TRAINING = """
import torch
x = torch.ones(4, 4, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([x])
for _ in range(4):
    x.sum().backward()
    optimizer.step()
"""


def refused(run, *named: str) -> None:
    assert run.returncode == 2
    [line] = run.stderr.splitlines()
    assert all(name in line for name in named), line


@pytest.mark.parametrize(
    "options",
    [
        ["--fuse"], ["--drop-barriers"], ["--no-reduce-scatter"],
        ["--loop-lookahead", "inf"], ["--entry", "main"], ["--trip-count", "3"], ["--branch", "1"],
    ],
)  # fmt: skip
def test_of_programs_with_traces_of_a_run(options, tmp_path: Path) -> None:
    run = flint("convert", TRACE, "-o", tmp_path / "out", *options)
    refused(run, options[0], "is for programs")
    assert not (tmp_path / "out").exists()


def test_all_of_them_are_named(tmp_path: Path) -> None:
    run = flint("convert", TRACE, "-o", tmp_path / "out", "--drop-barriers", "--fuse")
    refused(run, "--drop-barriers, --fuse are for programs")


@pytest.mark.parametrize(
    "options",
    [["--ranks", "0"], ["--granularity", "op"], ["--annotate"], ["--system", "dgx-h100"]],
)
def test_of_traces_at_the_logical_level(options, tmp_path: Path) -> None:
    file = tmp_path / "step.py"
    file.write_text(STEP)
    run = flint(
        "capture", f"{file}:step", "--mesh", "2", "--setup", "setup", "--level", "logical",
        "-o", tmp_path / "out", *options,
    )  # fmt: skip
    refused(run, options[0], "is for traces")


def test_of_recorded_ranks_with_a_program_of_all_ranks(tmp_path: Path) -> None:
    file = tmp_path / "step.py"
    file.write_text(STEP)
    run = flint(
        "capture", f"{file}:step", "--mesh", "2", "--setup", "setup", "--audit", "2",
        "-o", tmp_path / "out",
    )  # fmt: skip
    refused(run, "--audit", "is for PyTorch")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["simulate", "explain"])
@pytest.mark.parametrize("option", [("--communication", "modelled"), ("--host", "none")])
def test_of_measured_times_where_nothing_was_measured(command, option, tmp_path: Path) -> None:
    assert flint("convert", MODULE, "-o", tmp_path / "out").returncode == 0
    refused(flint(command, tmp_path / "out", *option), option[0], "is for profiles")


@pytest.mark.parametrize(
    "option", [("--step", "4"), ("--group", "dp=0-3"), ("--et", TRACE), ("--scale-out", "dp=8")]
)
def test_of_profiles_with_a_program(option, tmp_path: Path) -> None:
    run = flint("convert", MODULE, "-o", tmp_path / "out", *option)
    refused(run, option[0], "is for profiles")
    assert not (tmp_path / "out").exists()


def test_of_a_capture_with_a_list_of_steps(tmp_path: Path) -> None:
    run = flint(
        "run", "--list-steps", "--world", "2", "-o", tmp_path / "out", "--step", "2", "--", "a.py"
    )
    refused(run, "-o, --step are for a capture")


def test_an_execution_trace_completes_no_execution_trace(tmp_path: Path) -> None:
    trace = TRACE.parent / "et_1.0.2_rank0.json.gz"
    run = flint("convert", trace, "--et", trace, "-o", tmp_path / "out")
    refused(run, "--et", "completes a Kineto trace")


def test_a_group_that_no_communication_has_is_named(tmp_path: Path) -> None:
    run = flint("convert", TRACE, "--group", "no_such=0-7", "-o", tmp_path / "out")
    assert run.returncode == 0
    assert "warning: --group no_such changes nothing" in run.stderr


@pytest.mark.thorough
def test_slices_with_a_pytorch_program(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    run = flint("run", "--world", "1", "--slices", "1", "-o", tmp_path / "out", "--", program)
    assert run.returncode == 0, run.stderr
    run = flint("run", "--world", "2", "--slices", "2", "-o", tmp_path / "no", "--", program)
    refused(run, "--slices is for JAX programs")


def test_a_workload_folder_is_neither_a_program_nor_a_profile(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert flint("convert", MODULE, "-o", folder).returncode == 0
    refused(flint("convert", folder, "-o", tmp_path / "more"), "out is a workload folder")
    run = flint("validate", folder, "--trace", folder)
    assert run.returncode == 1 and "no trace in the folder" in run.stderr
