"""Attention as a fused kernel or as it is written, in a whole step and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from typer.testing import CliRunner

import flint
from flint.cli import application, main
from flint.models.jax.llama3 import train_tiny
from flint.passes.attention import LEFT
from flint.simulation.recording import record
from flint.simulation.running import simulate

OPTIMIZED = Path(__file__).parent.parent / "data/optimized/gpu_llama.hlo.pb.gz"


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


def test_attention_that_cannot_be_a_kernel_is_a_note_and_no_error() -> None:
    """Each one's second product with its weights takes the other's first result: one can fuse."""

    def crossed(q, k, v):
        one = jax.nn.softmax(q @ k.swapaxes(-1, -2))
        other = jax.nn.softmax(k @ q.swapaxes(-1, -2))
        first, second = one @ v, other @ v
        return one @ jnp.tanh(second), other @ jnp.tanh(first)

    heads = jax.ShapeDtypeStruct((2, 4, 64, 16), jnp.float32)
    workload = flint.capture(crossed, mesh=(1,), axes=("x",)).capture(heads, heads, heads)
    found = simulate(workload, "dgx-h100")
    assert f"{LEFT} (1 of them)" in found.notes
    assert any("timed as 1 fused kernel (" in note for note in found.notes)
    assert record(workload, "dgx-h100").step
    assert not any(LEFT in note for note in simulate(workload, fused_attention=False).notes)


def test_the_option_is_refused_where_nothing_would_be_fused(tiny, tmp_path, capsys) -> None:
    folder = tmp_path / "out"
    tiny.save(folder)
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", str(folder), "--attention-as-written", "--granularity", "op"])
    assert "always timed as written" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["convert", str(OPTIMIZED), "-o", str(tmp_path / "gpu")])
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", str(tmp_path / "gpu"), "--attention-as-written"])
    assert "an optimized one is timed as the compiler wrote it" in capsys.readouterr().err
