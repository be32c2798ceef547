"""Captured collectives against those that the same step executes on host devices."""

from __future__ import annotations

import pytest

from tests.capture.comparing import assert_same_collectives, flops_by_xlas_rules, xlas_flops

STEPS = ("mlp", "scan", "unrolled", "ring", "four", "explicit", "bf16", "ruled")


@pytest.mark.parametrize("name", STEPS)
def test_collectives_are_those_that_run(name, captured, executed):
    workload = captured(name, reduce_scatter=False)
    assert_same_collectives(workload, executed[name])


@pytest.mark.parametrize("name", STEPS)
def test_flops_are_xlas_of_the_partitioned_module(name, captured):
    [program] = captured(name, reduce_scatter=False).programs
    assert flops_by_xlas_rules(program) == xlas_flops(program)
