"""Attention as a fused kernel or as it is written, in a whole step and on the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from flint.cli import application
from flint.models.jax.llama3 import train_tiny
from flint.simulation.running import simulate


@pytest.fixture(scope="module")
def tiny():
    return train_tiny.at((2, 2)).capture()


def test_a_step_is_shorter_with_the_kernel_and_says_so(tiny) -> None:
    fused = simulate(tiny, "tpu-v5e-pod")
    written = simulate(tiny, "tpu-v5e-pod", fused_attention=False)
    assert any("attention" in note for note in fused.notes)
    assert not any("attention" in note for note in written.notes)
    assert fused.figures.flops < written.figures.flops
    assert fused.figures.peak_memory_bytes <= written.figures.peak_memory_bytes
    assert fused.step_seconds < written.step_seconds


def test_at_the_granularity_of_ops_nothing_is_fused(tiny) -> None:
    options = {"granularity": "op"}
    fused, written = (simulate(tiny, fused_attention=x, **options) for x in (True, False))
    assert fused.step_seconds == written.step_seconds


def test_the_option_of_the_command(tiny, tmp_path) -> None:
    folder = tmp_path / "out"
    tiny.save(folder)
    seconds = []
    for options in ((), ("--attention-as-written",)):
        result = CliRunner().invoke(application(), ["simulate", str(folder), "--json", *options])
        assert result.exit_code == 0, result.output
        seconds.append(json.loads(result.stdout)["step_seconds"])
    assert seconds[0] < seconds[1]
