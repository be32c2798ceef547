"""Steps whose shardings the older partitioner chooses (Shardy switched off), against a run."""

from __future__ import annotations

import collections
from pathlib import Path

import jax
import pytest

import flint
from flint.frontends.jax.known_results import OF_PARTS_OF_AXES
from tests.frontends.jax import gspmd_steps
from tests.frontends.jax.test_sequences import count, totals_by_program
from tests.support.children import answer_of


@pytest.fixture(scope="module")
def executed():
    return answer_of(Path(gspmd_steps.__file__), devices=8)


@pytest.fixture
def captured():
    """What a step becomes while Shardy is off."""

    def get(name):
        step = flint.capture(mesh=(4, 2), axes=("data", "model"), setup=gspmd_steps.setup)
        return step(getattr(gspmd_steps, name)).capture(options={"reduce_scatter": False})

    before = jax.config.values["jax_use_shardy_partitioner"]
    jax.config.update("jax_use_shardy_partitioner", False)
    yield get
    jax.config.update("jax_use_shardy_partitioner", before)


def totals(collectives):
    """(kind, groups) -> [calls, result bytes]."""
    found = collections.defaultdict(lambda: [0, 0])
    for kind, groups, size in collectives:
        found[kind, groups][0] += 1
        found[kind, groups][1] += size
    return found


def test_one_program_communicates_as_compiled(executed, captured):
    graph = captured("update").graph
    found = collections.defaultdict(lambda: [0, 0])
    for node in range(len(graph)):
        count(graph, node, 1, found)
    assert found
    assert [found] == [totals(one) for one in executed["update"]]


def test_a_sharding_over_parts_of_an_axis_is_what_the_next_program_gets(executed, captured):
    """The second program reduces over the first half of the axis, the third one over the other."""
    workload = captured("split")
    assert totals_by_program(workload) == [totals(one) for one in executed["split"]]
    assert len(executed["split"][1]) == len(executed["split"][2]) == 1
    assert workload.warnings[OF_PARTS_OF_AXES]
