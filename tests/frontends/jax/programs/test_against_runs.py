"""Whole programs: the step that is captured is the one that a real run compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from flint.launching.capturing import capture
from flint.launching.program import Cluster, Program, ProgramRequest
from tests.frontends.jax.programs.really_run import instructions, partitioned
from tests.support.shared import quick

PROGRAMS = Path(__file__).parents[3] / "programs" / "jax"

#: Program -> the jitted functions of its step.
STEPS = {
    "optax_loop": ["train_step"],
    "linen_state": ["train_step"],
    "nnx_model": ["train_step"],
    "mapped_processes": ["update"],
    "compiled_ahead": ["gradients", "gradients", "gradients", "apply"],
}


def request(name, *arguments, devices=8, per_node=8, **choices):
    program = Program(target=str(PROGRAMS / f"{name}.py"), arguments=arguments)
    cluster = Cluster(world=devices, per_node=per_node)
    return ProgramRequest(program=program, cluster=cluster, **choices)


def modules(workload):
    [program] = workload.programs
    if program.calls:
        return [(call.name.rstrip("_0123456789"), call.module[0]) for call in program.calls]
    return [(workload.input["function"], program.module[0])]


@pytest.mark.parametrize("name", quick(list(STEPS), "optax_loop"))
def test_the_step_is_the_module_that_a_run_compiles(name, tmp_path):
    captured = modules(capture(request(name)))
    assert [function for function, _ in captured] == STEPS[name]
    run = partitioned(PROGRAMS / f"{name}.py", tmp_path)
    for function, module in captured:
        assert instructions(module) == instructions(run[function]), function
