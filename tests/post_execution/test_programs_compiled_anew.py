"""Steps of a JAX profile in which each has programs of its own, compiled anew."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

from flint.converters.profilers.xplane import times
from flint.observed.program_runs import AskedProgram
from flint.post_execution.converting import convert_traces

pytestmark = pytest.mark.xdist_group("post-execution-jax")


@pytest.mark.parametrize("name", ["jit_gradient", "jit__lambda", "jit_momentum"])
def test_whichever_program_takes_the_most_time_a_step_has_all_of_them(name, host_runs, monkeypatch):
    """Which takes the most depends on the machine: each is taken for it in turn."""
    folder = host_runs.profile_of_calls("tests.frontends.jax.sequence_steps:ahead")
    monkeypatch.setattr(times, "longest_program", lambda _: AskedProgram(name, 0))
    workload = convert_traces([folder])
    programs = [text.partition("(")[0] for text in workload.options["programs"]]
    assert programs == ["jit_gradient", "jit__lambda", "jit_momentum"]
    assert not workload.warnings
