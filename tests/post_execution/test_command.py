"""``flint convert`` on profiles, as a user runs it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.test_convert import failed, flint

TRACES = Path(__file__).parent.parent / "data" / "traces"
NCCL = TRACES / "resnet50_ddp_nccl_calls_rank0.json.gz"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("convert") / "out"
    run = flint("convert", NCCL, "-o", out)
    assert run.returncode == 0, run.stderr
    assert "durations as measured" in run.stdout
    assert "no trace of 1 of 2 ranks (1)" in run.stderr
    return out


@pytest.mark.parametrize("command", ["check", "inspect", "simulate"])
def test_what_convert_writes_goes_through_the_other_commands(folder, command):
    run = flint(command, folder, *(["--json"] if command == "simulate" else []))
    assert run.returncode == 0, run.stderr + run.stdout
    if command == "inspect":
        # All kernels of the library that communicates, of which most time is all-reduce's.
        events = json.loads(gzip.decompress(NCCL.read_bytes()))["traceEvents"]
        reduces = [e["dur"] for e in events if e["name"].startswith("ncclKernel_AllReduce")]
        assert f"{sum(reduces) / 1e3:.3f} ms" in run.stdout
    if command == "simulate":
        # From the first kernel's begin to the last one's end.
        events = json.loads(gzip.decompress(NCCL.read_bytes()))["traceEvents"]
        device = ("kernel", "gpu_memcpy", "gpu_memset")
        ran = [event for event in events if event["cat"] in device]
        span = max(e["ts"] + e["dur"] for e in ran) - min(e["ts"] for e in ran)
        assert json.loads(run.stdout)["step_seconds"] * 1e6 == pytest.approx(span, rel=1e-4)
        # Without the host, kernels run one after another, and exposed communication comes on top.
        micros = sum(event["dur"] for event in ran if "nccl" not in event["name"])
        options = ("--host", "none", "--communication", "modelled", "--json")
        modelled = json.loads(flint(command, folder, *options).stdout)["step_seconds"] * 1e6
        assert micros < modelled < 1.02 * micros


def test_a_packed_trace_that_is_cut_off_is_one_line(tmp_path):
    (tmp_path / "rank0.json.gz").write_bytes(NCCL.read_bytes()[:20_000])
    run = flint("convert", tmp_path / "rank0.json.gz", "-o", tmp_path / "out")
    assert "rank0.json.gz" in failed(run, 1)
    assert not (tmp_path / "out").exists()


def test_programs_are_converted_one_at_a_time(tmp_path):
    (tmp_path / "a.mlir").write_text("module {}")
    run = flint("convert", NCCL, tmp_path / "a.mlir", "-o", tmp_path / "out")
    assert "a.mlir is not a profile" in failed(run, 2)
