"""A step of several programs against its run: each program with its own."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from flint.validation.validating import validate
from tests.frontends.jax import sequence_steps
from tests.support.shared import quick

MODULE = "tests.frontends.jax.sequence_steps"


@pytest.fixture(scope="module")
def compare(host_runs):
    def run(captured, executed):
        step = getattr(sequence_steps, captured)
        workload = step.capture(options={"reduce_scatter": False})
        return validate(workload, [host_runs.profile_of_calls(f"{MODULE}:{executed}")])

    return run


@pytest.mark.parametrize("name", quick(sequence_steps.STEPS, "zero1"))
def test_every_program_ran_as_captured(name, compare):
    report = compare(name, name)
    assert report.ok
    assert report.ranks == list(range(8))


def test_a_program_that_did_not_run_is_an_error(compare):
    with pytest.raises(FlintError, match=r"the step runs jit_gradient; in the trace are jit_"):
        compare("zero1", "outside")
