"""Profiles of programs on one H100: replayed, and compared with captures of the programs.

Counts are made here from the files themselves: kernels and copies that calls within the last
``ProfilerStep`` launched.
"""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
from pathlib import Path

import pytest

from flint.post_execution.converting import convert_traces

DATA = Path(__file__).parents[1] / "data" / "single_gpu"
PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "accuracy" / "single_gpu" / "programs"
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def unpacked(name, folder):
    path = folder / f"{name}.json"
    path.write_bytes(lzma.decompress((DATA / f"{name}.json.xz").read_bytes()))
    return path


def launched(path):
    """Seconds of each kernel that the last step launched, in order of their starts."""
    events = json.loads(path.read_text())["traceEvents"]
    steps = [e for e in events if str(e.get("name", "")).startswith("ProfilerStep")]
    last = max((e for e in steps if e["cat"] == "user_annotation"), key=lambda e: e["ts"])
    calls = {
        e["args"]["correlation"]
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver")
        and last["ts"] <= e["ts"] < last["ts"] + last["dur"]
        and "correlation" in e.get("args", {})
    }
    found = [e for e in events if e.get("cat") in ON_DEVICE]
    found = [e for e in found if e["args"].get("correlation") in calls]
    return [(e["ts"], e["dur"]) for e in sorted(found, key=lambda e: e["ts"])]


@pytest.mark.parametrize("name", ["gpt2_compile"])
def test_a_step_takes_its_measured_time_again(name, tmp_path):
    path = unpacked(name, tmp_path)
    kernels = launched(path)
    out = tmp_path / "out"
    assert command("convert", path, "-o", out)[0] == 0
    result = json.loads(command("simulate", out, "--json")[1])
    busy = sum(duration for _, duration in kernels) * 1e-6
    span = (kernels[-1][0] + kernels[-1][1] - kernels[0][0]) * 1e-6
    assert result["compute_seconds"] == pytest.approx(busy, rel=0.02)
    assert result["step_seconds"] == pytest.approx(span, rel=0.02)


def command(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "flint", *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=230,
    )  # fmt: skip
    return done.returncode, done.stdout or done.stderr


@pytest.mark.thorough
def test_a_profile_has_the_kernels_of_the_capture_of_its_program(tmp_path):
    """All products and attentions, and the lighter kernels between them."""
    pytest.importorskip("torch")
    program = ["python", PROGRAMS / "long.py"]
    status, text = command("run", "--world", "1", "-o", tmp_path / "out", "--", *program)
    assert status == 0, text
    profile = unpacked("long", tmp_path)
    status, text = command("validate", tmp_path / "out", "--trace", profile)
    assert "all 56 collectives, GEMMs, convolutions and attentions ran as captured" in text
    assert status == 0


def test_launches_without_anything_on_the_device_are_counted(tmp_path):
    """A driver that gives the profiler nothing leaves the host's side of each launch alone."""
    path = unpacked("gpt2_compile", tmp_path)
    trace = json.loads(path.read_text())
    host = [event for event in trace["traceEvents"] if event.get("cat") not in ON_DEVICE]
    calls = [e["name"] for e in host if e.get("cat") in ("cuda_runtime", "cuda_driver")]
    launches = [n for n in calls if "Launch" in n or "Memcpy" in n or "Memset" in n]
    path.write_text(json.dumps({**trace, "traceEvents": host}))
    workload = convert_traces([path])
    [count] = [n for text, n in workload.warnings.items() if "only the host's time" in text]
    assert count == len(launches) > 0
