"""XLA's kernels of whole rows against what an H100 and an H200 took (jax 0.11.2, November 2026)."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import pytest

import flint
from flint.cost.kernels import kernel_seconds
from flint.cost.systems import load_system
from flint.passes import apply
from tests.passes.xla.kernels.programs import F32, of

JAX = Path(__file__).parents[2] / "benchmarks" / "accuracy" / "single_gpu" / "jax"
#: Microseconds of a norm of bf16[4,2048,1536] on an H200 (``fusion``, eight of them): least and
#: most in tests/data/single_gpu/moe_dropless.xplane.pb.xz.
NORM = (15.1, 16.4)


def microseconds(function, argument, name):
    """Of the only kernel of a program, on one device of a system."""
    system = load_system(name)
    model = replace(system.accelerator, kernel=system.accelerator.kernel.on_one_device())
    graph = apply(flint.capture(mesh=(1,))(function).capture(argument).graph, "xla")
    [seconds] = kernel_seconds(graph, replace(system, accelerator=model))
    return seconds * 1e6


def test_rows_of_a_norm_move_as_fast_as_other_kernels() -> None:
    def norm(x):
        y = x.astype(F32)
        return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6)).astype(x.dtype)

    found = microseconds(norm, of(4, 2048, 1536), "hgx-h200")
    assert 0.85 * NORM[0] < found < 1.15 * NORM[1]


def test_rows_of_a_softmax_move_as_fast_as_tritons_on_an_h100() -> None:
    """1.9 TB/s (docs/accuracy/one-gpu.md): 2 x 16 x 2,048 x 2,048 bf16, read and written."""
    found = microseconds(lambda x: jax.nn.softmax(x, -1), of(2, 16, 2048, 2048), "dgx-h100")
    assert found == pytest.approx(2 * 2 * 16 * 2048 * 2048 * 2 / 1.9e12 * 1e6, rel=0.03)


@pytest.mark.thorough
def test_a_step_whose_attention_xla_compiles_takes_what_was_measured(tmp_path) -> None:
    """``llama_plain``: softmaxes are a quarter of 45.9 ms; 41.0 without their pace."""
    run = (sys.executable, "-m", "flint", "run", "--world", "1", "--system", "dgx-h100")
    words = (*run, "-o", str(tmp_path / "out"), "--", "python", "llama_plain.py")
    subprocess.run(words, cwd=JAX / "programs", check=True, capture_output=True, timeout=400)
    step = flint.load(tmp_path / "out").simulate("dgx-h100", granularity="xla")
    [measured] = [
        float(row["step_seconds"])
        for row in csv.DictReader((JAX / "measured.csv").open())
        if row["program"] == "llama_plain"
    ]
    assert step.figures.step_seconds == pytest.approx(measured, rel=0.05)
