"""Programs drawn from a number: what nobody has thought of together, captured as it really runs.

A number decides the model, its strategy and the loop around it.  Few numbers are tried by
default; ``make test-drawn DRAWN=100-140`` tries others.  Each is compared as the programs of
packages are.  PyTorch and JAX refuse some combinations themselves, which nothing is compared of.
"""

from __future__ import annotations

import os

import pytest

from flint.hlo.messages import parse_module
from flint.workload.loading import load
from tests.frontends.jax.programs.really_run import instructions, modules, partitioned
from tests.programs import comparing
from tests.support.command_line import flint

HERE = comparing.HERE / "drawn"
FIRST, LAST = map(int, os.environ.get("DRAWN", "1-3").split("-"))
NUMBERS = range(FIRST, LAST + 1)
#: gloo has no all-to-all of DTensors on CPUs: PyTorch gathers there and takes a part.
ON_CPUS = {"all_to_all": "all_gather"}


def really_run(folder, world, program, number):
    try:
        return comparing.real(folder, world, str(HERE / program), str(number))
    except AssertionError as refused:
        pytest.skip(f"does not run: {str(refused).strip().splitlines()[-1]}")


@pytest.mark.thorough
@pytest.mark.parametrize("number", NUMBERS)
def test_a_drawn_training_is_captured_as_it_runs(tmp_path, number):
    world = 4 if number % 3 else 2
    run = really_run(tmp_path, world, "torch_program.py", number)
    assert comparing.captured(tmp_path, world, "python", HERE / "torch_program.py", number) == run


@pytest.mark.thorough
@pytest.mark.parametrize("number", NUMBERS)
def test_drawn_placements_of_tensors_are_captured_as_they_run(tmp_path, number):
    world = 4 if number % 3 else 2
    run = really_run(tmp_path, world, "sharded_program.py", number)
    found = comparing.captured(tmp_path, world, "python", HERE / "sharded_program.py", number)
    for ranks in (run, found):
        for rank in ranks:
            for calls in rank["collectives"].values():
                calls[:] = [[ON_CPUS.get(kind, kind), size] for kind, size in calls]
    assert found == run


@pytest.mark.thorough
@pytest.mark.parametrize("number", NUMBERS)
def test_a_drawn_jax_program_is_captured_as_xla_compiles_it(tmp_path, number):
    program = HERE / "jax_program.py"
    done = flint(
        "run", "--world", 8, "--gpus-per-node", 8, "--ranks", 0, "-o", tmp_path / "out",
        "--", "python", program, number, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = partitioned(program, tmp_path, number, devices=8)
    executed = {parse_module(module).name: module for module in run.values()}
    for _, module in modules(load(tmp_path / "out")):
        assert instructions(module) == instructions(executed[parse_module(module).name])
