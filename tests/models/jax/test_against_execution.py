"""Every tiny model, run for real on host devices: what it sends is what was captured."""

from __future__ import annotations

import pytest

from tests.frontends.jax.comparing import assert_same_collectives, flops_by_xlas_rules, xlas_flops
from tests.models.jax.names import MODELS

pytestmark = pytest.mark.xdist_group("models")


@pytest.mark.parametrize("name", MODELS)
def test_collectives_are_those_that_run(name, captured_model, executed_models):
    assert_same_collectives(captured_model(name, reduce_scatter=False), executed_models[name])


@pytest.mark.parametrize("name", MODELS)
def test_flops_are_xlas_of_the_partitioned_module(name, captured_model):
    [program] = captured_model(name, reduce_scatter=False).programs
    assert flops_by_xlas_rules(program) == xlas_flops(program)
