"""Time of blind rows' hosts: values that they read from the device one by one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy"))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import accuracy
import expressed
import predict
from recipes import read_recipes

#: Seconds of a position: index, compare, and a scalar's way to the host, of which nine took
#: 80.75 us on an A6000 (HyperGAN, pull request 344).
EACH = 20e-6


@pytest.mark.parametrize(
    ("batch", "name", "positions"),
    [
        ("second", "rlprime-q06b-h100-16k", 2 * 16_384),
        ("second", "rlprime-q30b-h200-16k", 2 * 16_384),
        ("third", "prl-q30b-h200-64k", 2 * 65_536),
        (".", "prime-q06b-h100-16k", 0),  # the trainer of its loss reads none
    ],
)
def test_the_rl_trainer_reads_each_position_of_its_microbatches(batch, name, positions) -> None:
    """``get_response_lengths`` of prime-rl's ``trainer/utils.py`` of January 2026 compares each
    element of a tensor on the device, in Python."""
    found = predict.expressed(read_recipes(predict.HERE / batch / "recipes.csv")[name])
    assert found.host == pytest.approx(positions * EACH)
    assert ("positions one by one" in found.differs) == bool(positions)


def test_the_device_waits_while_the_host_reads(monkeypatch, tmp_path) -> None:
    """After a forward pass, with nothing launched: the step is longer by all of it."""
    recipe = read_recipes(predict.HERE / "second" / "recipes.csv")["rlprime-q06b-h100-16k"]
    found = predict.expressed(recipe)
    program = SimpleNamespace(launch_seconds=0.01, memory={})
    result = SimpleNamespace(
        programs=(program,), step_seconds=1.0, exposed_communication_seconds=0.0,
        peak_memory_bytes=1,
    )  # fmt: skip
    monkeypatch.setattr(accuracy, "workloads_of", lambda *given: {})
    monkeypatch.setattr(accuracy, "results_of", lambda *given, **more: {1: result})
    monkeypatch.setattr(expressed, "extrapolated", lambda values, batches: values[1])
    without = expressed.predicted(replace(found, host=0.0), recipe, tmp_path)
    whole = expressed.predicted(found, recipe, tmp_path)
    assert whole.seconds - without.seconds == pytest.approx(2 * 16_384 * EACH)
