"""Attention as a fused kernel or as written, in a whole step and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from typer.testing import CliRunner

import flint
from flint.cli import application, main
from flint.host.readable import human_seconds
from flint.models.jax.llama3 import train_tiny
from flint.passes.attention.fuse import LEFT
from flint.simulation.attention_choice import CHOICES
from flint.simulation.recording import record
from flint.simulation.running import simulate

OPTIMIZED = Path(__file__).parent.parent / "data/optimized/gpu_llama.hlo.pb.gz"


@pytest.fixture(scope="module")
def tiny():
    return train_tiny.at((2, 2)).capture()


def test_a_step_is_shorter_with_the_kernel_and_reports_it(tiny) -> None:
    fused = simulate(tiny, "tpu-v5e-pod", attention="fused")
    written = simulate(tiny, "tpu-v5e-pod", attention="as-written")
    assert any("timed as 3 fused kernels" in note for note in fused.notes)
    assert not any("attention" in note for note in written.notes)
    assert fused.figures.flops < written.figures.flops
    assert fused.figures.peak_memory_bytes <= written.figures.peak_memory_bytes
    assert fused.step_seconds < written.step_seconds


def of_attention(implementation: str, length: int) -> flint.Workload:
    """The gradients of attention alone: 2 sequences, 4 heads of 64."""
    heads = jax.ShapeDtypeStruct((2, length, 4, 64), jnp.bfloat16)

    def loss(q, k, v):
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation=implementation)
        return mixed.astype(jnp.float32).sum()

    step = flint.capture(jax.value_and_grad(loss, (0, 1, 2)), mesh=(1,), axes=("x",))
    return step.capture(heads, heads, heads)


def test_unstated_it_runs_as_written_and_both_times_are_reported() -> None:
    workload = of_attention("xla", 1024)
    unstated, written, fused = (simulate(workload, attention=x) for x in (None, *CHOICES[::-1]))
    assert unstated.figures == written.figures
    assert fused.step_seconds < written.step_seconds / 1.1
    (note,) = (note for note in unstated.notes if "attention" in note)
    for result in (written, fused):
        assert human_seconds(result.step_seconds) in note


def test_a_difference_that_does_not_matter_is_not_reported(tiny) -> None:
    unstated, fused = (simulate(tiny, "tpu-v5e-pod", attention=x) for x in (None, "fused"))
    assert unstated.step_seconds < fused.step_seconds * 1.1
    assert not any("attention" in note for note in unstated.notes)


def test_what_a_program_calls_by_name_is_the_kernel_and_nothing_is_fused() -> None:
    """cuDNN's kernel: two products forward and five backward, whatever is asked for."""
    workload = of_attention("cudnn", 64)
    steps = {simulate(workload, attention=choice).step_seconds for choice in (None, *CHOICES)}
    assert len(steps) == 1
    result = simulate(workload)
    assert not any("attention" in note for note in result.notes)
    (row,) = (row for row in result.programs[0].classes if row.name == "attention")
    assert row.count == 2
    # A causal mask leaves 65 / 128 of 64 x 64 scores of 2 x 4 heads of 64.
    assert row.flops == pytest.approx(7 * 2 * 2 * 4 * 64 * 64 * 64 * 65 / 128)


def test_at_the_granularity_of_ops_nothing_is_fused(tiny) -> None:
    options = {"granularity": "op"}
    fused, written = (simulate(tiny, attention=x, **options) for x in CHOICES)
    assert fused.step_seconds == written.step_seconds


def test_the_option_of_the_command(tiny, tmp_path) -> None:
    folder = tmp_path / "out"
    tiny.save(folder)
    seconds = {}
    for choice in ("", *CHOICES):
        options = ("--attention", choice) if choice else ()
        result = CliRunner().invoke(application(), ["simulate", str(folder), "--json", *options])
        assert result.exit_code == 0, result.output
        seconds[choice] = json.loads(result.stdout)["step_seconds"]
    assert seconds["fused"] < seconds["as-written"] == seconds[""]


def test_attention_that_cannot_be_a_kernel_is_a_note_and_no_error() -> None:
    """Each one's second product with its weights takes the other's first result: one can fuse."""

    def crossed(q, k, v):
        one = jax.nn.softmax(q @ k.swapaxes(-1, -2))
        other = jax.nn.softmax(k @ q.swapaxes(-1, -2))
        first, second = one @ v, other @ v
        return one @ jnp.tanh(second), other @ jnp.tanh(first)

    heads = jax.ShapeDtypeStruct((2, 4, 64, 16), jnp.float32)
    workload = flint.capture(crossed, mesh=(1,), axes=("x",)).capture(heads, heads, heads)
    found = simulate(workload, "dgx-h100", attention="fused")
    assert f"{LEFT} (1 of them)" in found.notes
    assert any("timed as 1 fused kernel (" in note for note in found.notes)
    assert record(workload, "dgx-h100", attention="fused").step
    assert not any(LEFT in note for note in simulate(workload).notes)


def test_the_option_is_refused_where_nothing_would_be_fused(tiny, tmp_path, capsys) -> None:
    folder = tmp_path / "out"
    tiny.save(folder)
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", str(folder), "--attention", "fused", "--granularity", "op"])
    assert "always timed as written" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", str(folder), "--attention", "flash"])
    assert "choose from fused, as-written" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["convert", str(OPTIMIZED), "-o", str(tmp_path / "gpu")])
    capsys.readouterr()
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", str(tmp_path / "gpu"), "--attention", "fused"])
    assert "an optimized one is timed as the compiler wrote it" in capsys.readouterr().err
