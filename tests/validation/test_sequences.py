"""A step of several programs against its run: each program with its own."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from flint.observed.program_runs import ProgramRun, ProgramRuns
from flint.validation.program_order import OTHER_ORDER, compare_order
from flint.validation.report.report import Report
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


def test_a_program_that_ran_more_often_is_a_difference(compare):
    """The run has four gradients, and additions that communicate nothing, in each of two steps."""
    report = compare("zero1", "accumulates")
    assert not report.ok
    found = {(item.what, item.op, item.counts) for item in report.differences if item.rank == 3}
    assert found == {
        ("not as often", "program jit_gradient: 8 runs in 2 steps, captured 1 per step", True),
        ("not captured", "program jit_add: 3 runs within steps", False),
    }


@pytest.fixture(scope="module")
def ahead():
    """Three programs: the gradient; of that, squares; of that, the momentum."""
    return sequence_steps.ahead.capture()


GRADIENT, SQUARES, MOMENTUM = (
    ProgramRun(f"jit_{name}", True) for name in ("gradient", "_lambda", "momentum")
)
OTHER = ProgramRun("jit_other", True)


def of_order(workload, backend, *ran):
    report = Report([], workload.mesh.size, False)
    compare_order(workload, ProgramRuns(backend, {0: list(ran)}), report)
    return report


def test_steps_that_the_trace_cuts_are_in_order(ahead):
    step = (GRADIENT, SQUARES, MOMENTUM)
    assert of_order(ahead, "gpu", *step, *step).ok
    assert not of_order(ahead, "gpu", *step, *step).notes
    report = of_order(ahead, "gpu", MOMENTUM, *step, OTHER, *step, GRADIENT)  # not within a step
    assert report.ok
    assert list(report.notes) == ["the trace begins or ends within a step"]


def test_another_order_is_a_difference_but_for_independent_programs_of_cpus(ahead):
    swapped = (GRADIENT, MOMENTUM, SQUARES) * 2
    [difference] = of_order(ahead, "gpu", *swapped).differences
    assert difference.what == "in another order"
    assert "jit__lambda, call 2 of the step: jit_momentum ran" in difference.op
    report = of_order(ahead, "cpu", *swapped)
    assert report.ok
    assert report.notes == {OTHER_ORDER: 2}
    early = (SQUARES, GRADIENT, MOMENTUM, GRADIENT, SQUARES, MOMENTUM)
    assert not of_order(ahead, "cpu", *early).ok


def test_another_program_within_a_step_counts_where_it_is_heavy(ahead):
    assert not of_order(ahead, "gpu", GRADIENT, OTHER, SQUARES, MOMENTUM).ok
    light = OTHER._replace(heavy=False)
    report = of_order(ahead, "gpu", GRADIENT, light, SQUARES, MOMENTUM)
    assert report.ok
    assert report.others == 1


def test_a_program_that_did_not_run_is_an_error(compare):
    with pytest.raises(FlintError, match=r"the step runs jit_gradient; the trace contains jit_"):
        compare("zero1", "outside")
