"""Every tiny model, run for real on host devices: what it sends is what was captured."""

from __future__ import annotations

import pytest

from tests.frontends.jax.comparing import assert_same_collectives, flops_by_xlas_rules, xlas_flops
from tests.models.jax.names import MODELS
from tests.support.shared import quick

pytestmark = pytest.mark.xdist_group("models")


@pytest.mark.thorough
@pytest.mark.parametrize("name", quick(MODELS, "llama3"))
def test_collectives_are_those_that_run(name, captured_model, host_runs):
    ran = host_runs.collectives(":".join(MODELS[name]))
    assert_same_collectives(captured_model(name, reduce_scatter=False), ran)


@pytest.mark.parametrize("name", quick(MODELS, "llama3", "resnet"))
def test_flops_are_xlas_of_the_partitioned_module(name, captured_model):
    [program] = captured_model(name, reduce_scatter=False).programs
    assert flops_by_xlas_rules(program) == xlas_flops(program)
