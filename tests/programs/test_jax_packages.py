"""Unmodified JAX programs of packages: the step that is captured is the module that a run compiles.

Each program of the table runs for real on host devices, where XLA writes down each module after
partitioning.  All instructions of the captured step are those of the module of its function.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from flint.workload.loading import load
from tests.frontends.jax.programs.really_run import instructions, modules, partitioned
from tests.programs import comparing, results
from tests.programs.packages import HERE, JAX_PROGRAMS
from tests.support.children import HUNG
from tests.support.command_line import flint


@pytest.mark.thorough
@pytest.mark.parametrize("program", JAX_PROGRAMS, ids=lambda item: item.name)
def test_the_step_is_the_module_that_a_run_compiles(program, tmp_path, monkeypatch):
    if not results.is_installed(program.package):
        pytest.skip(f"{program.package} is not in this environment: make test-programs")
    for name, value in program.variables.items():
        monkeypatch.setenv(name, value)
    if program.prepare:
        prepare = [sys.executable, str(HERE / program.prepare)]
        subprocess.run(prepare, cwd=tmp_path, check=True, timeout=HUNG)
    out, command = tmp_path / "out", ("python", *program.command)
    options = "--world", program.ranks, *program.options, "-o", out
    done = flint("run", *options, "--", *command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    workload = load(out)
    start, *arguments = *program.real, *program.command
    run = partitioned(start, tmp_path, *arguments, devices=program.ranks)
    executed = {name.strip("_"): module for name, module in run.items()}
    found = [(name.strip("_"), module) for name, module in modules(workload)]
    assert "train_step" in dict(found)
    for name, module in found:
        assert instructions(module) == instructions(executed[name]), name
    results.record(program.package, program.words, comparing.of_ranks(workload))
