"""Annotated steps of JAX programs that run a program several times."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("jax")

from flint.converters.profilers.xplane.annotated import SEVERAL, Marked
from flint.converters.profilers.xplane.observe import observe
from tests.validation.xplanes import Plane, Run, field, profile

MODULE = Path(__file__).parents[2] / "data/optimized/gpu_decode_cublas.hlo.pb.gz"


@pytest.mark.parametrize(("calls", "told"), [(1, None), (2, 3)])
def test_steps_that_run_a_program_several_times_are_told(calls, told, tmp_path):
    """As jax 0.11 writes it: a call is two events, one around the other."""
    run = Run(MODULE)
    path = profile(run, tmp_path / "g.xplane.pb", 1, runs=3 * calls)
    host, function = Plane("/host:CPU"), run.module.name.removeprefix("jit_")
    for step in range(3):
        begin = 1000 * step
        host.event("python", "train", begin, 900, _r=1, step_num=step)
        for call in range(calls):
            for inside in (0, 1):
                at = begin + 100 * (call + 1) + inside
                host.event("python", f"PjitFunction({function})", at, 50 - 2 * inside)
        host.event("python", "PjitFunction(other)", begin + 800, 20)
    path.write_bytes(path.read_bytes() + field(1, host.encoded()))
    assert observe(path).notes.get(SEVERAL) == told


class Named:
    start_ns, duration_ns = 5.0, 2.0

    def __init__(self, name):
        self.name = name


@pytest.mark.parametrize(
    ("call", "program"),
    [
        ("PjitFunction(step)", "jit_step"),
        ("PjitFunction(jit(step))", "jit_step"),  # what it was compiled to
        ("PjitFunction(<lambda>)", "jit__lambda"),
        ("PjitFunction(jitter)", "jit_jitter"),
    ],
)
def test_calls_are_known_by_the_name_of_their_program(call, program):
    marked = Marked([(0, 10)], [(8, 9, program.removeprefix("jit_").strip("_"))])
    assert marked.several(program) == 0
    marked.take(Named(call), {})
    assert marked.several(program) == 1
