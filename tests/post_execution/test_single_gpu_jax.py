"""A JAX profile of one H200 against a capture of its program: grouped products as XLA ran them."""

from __future__ import annotations

import lzma
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import flint
from flint.graph.work import Unit
from flint.passes.grouped_as_dense import as_dense

DATA = Path(__file__).parents[1] / "data" / "single_gpu"
PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "accuracy" / "single_gpu" / "jax" / "programs"
#: FLOPs of 16,384 rows [1536] with eight matrices [1536, 3072], all rows with each.
EVERY_GROUP = 2 * 16384 * 1536 * 3072 * 8
#: Seconds of a step that was waited for, by the clock of the program.
MEASURED = 0.0784


def run(*words: object, cwd: Path | None = None) -> None:
    command = [sys.executable, "-m", "flint", *map(str, words)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr


def products(graph) -> Counter[int]:
    """FLOPs of products, and how many a step has of each."""
    found: Counter[int] = Counter()
    for block, times in graph.walk():
        for flops in block.work_flops[block.work_unit == Unit.MATMUL].tolist():
            found[flops] += times
    return found


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    path = folder / "moe_dropless.xplane.pb"
    path.write_bytes(lzma.decompress((DATA / f"{path.name}.xz").read_bytes()))
    run("convert", path, "-o", folder / "out")
    return flint.load(folder / "out")


def test_a_replayed_step_takes_as_long_as_it_did(profile) -> None:
    assert profile.simulate("hgx-h200").figures.step_seconds == pytest.approx(MEASURED, rel=0.03)


@pytest.mark.thorough
def test_grouped_products_are_those_of_the_profile(profile, tmp_path) -> None:
    """8 forward, 8 again for the backward pass, 16 for gradients, each with all eight groups."""
    program = ("python", "moe_dropless.py")
    run("run", "--world", 1, "-o", tmp_path / "out", "--", *program, cwd=PROGRAMS)
    captured = products(as_dense(flint.load(tmp_path / "out").programs[0].graph))
    measured = products(profile.programs[0].graph)
    assert captured[EVERY_GROUP] == measured[EVERY_GROUP] == 32
