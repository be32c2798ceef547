"""Pipelines of many microbatches by a few of them: the same result to the tick as all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.execution.chains import CommunicationOrder
from flint.execution.node_types import NodeType
from flint.simulation import accounting
from flint.simulation.actors import build_actors
from flint.simulation.machine import run
from flint.simulation.microbatches import Microbatches
from flint.simulation.repeating import repeating
from flint.simulation.shortened_run import run_shortened
from tests.simulation.pipelines import SCHEDULES, CostsByName, pipeline
from tests.simulation.same_times import assert_same_times
from tests.support.shared import examples


@given(
    st.sampled_from([*SCHEDULES]),
    st.integers(1, 4),
    st.integers(1, 12),
    st.sampled_from([2, 5, 100, 10_000]),
    st.integers(0, 1 << 16),
    st.sampled_from([*CommunicationOrder]),
    st.sampled_from([True, True, False]),
)
# Kernels that take no time: each is early, but waits for its stream in all but the first period.
@example("GPipe", 1, 7, 2, 0, CommunicationOrder.RANK, False)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pipelines_take_as_long_as_all_their_microbatches(
    kind, stages, rounds, longest, seed, order, in_order
):
    programs, world = pipeline(kind, stages, 2 * rounds * stages, in_order=in_order), 2 * stages
    costs = CostsByName(seed, longest)
    actors = build_actors(
        programs, world, costs.ticks, costs=costs.columns, order=order, beside=costs.beside
    )
    full = run(actors.columns, actors.members)
    assert not full.stuck
    assert_same_times(actors, full, *run_shortened(programs, world, costs, order, searched=0))


@given(
    st.sampled_from(["1F1B", "ZB-H1", "interleaved"]),
    st.integers(1, 3),
    st.integers(0, 9),
    st.sampled_from([2, 100, 10_000]),
    st.integers(0, 1 << 16),
)
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_more_microbatches_than_were_captured_are_those_of_a_longer_capture(
    kind, stages, more, longest, seed
):
    captured, costs, world = 16 * stages, CostsByName(seed, longest), 2 * stages
    wanted = captured + more * stages
    programs = pipeline(kind, stages, wanted)
    actors = build_actors(programs, world, costs.ticks, costs=costs.columns, beside=costs.beside)
    full = run(actors.columns, actors.members)
    try:
        few = run_shortened(
            pipeline(kind, stages, captured), world, costs, searched=0,
            microbatches=Microbatches(captured, wanted),
        )  # fmt: skip
    except FlintError as error:
        assert "no steady state" in str(error)
        return
    assert_same_times(actors, full, *few)


class FreeMessages(CostsByName):
    """Messages take no time, kernels NodeType.COMP ticks and collectives NodeType.COLL."""

    def __init__(self) -> None:
        super().__init__(0, 1)

    def ticks(self, item, unrolled, emission, rank):
        found = super().ticks(item, unrolled, emission, rank)
        return np.where(emission.type == NodeType.SEND, 0, found)


def test_equal_stages_lose_the_bubble_of_the_formula():
    """1F1B of P equal stages whose messages take no time: m microbatches take (m + P - 1) (f + b)
    (Narayanan et al., 2021), so 488 more of them take 488 (f + b) more."""
    costs, ends = FreeMessages(), []
    for asked in (24, 512):
        _, few, repeated = run_shortened(
            pipeline("1F1B", 4, 24), 8, costs, searched=0, microbatches=Microbatches(24, asked)
        )
        ends.append(accounting.last_end(few, repeated, range(4)))
    both = 4 * int(NodeType.COMP) + int(NodeType.COLL)  # F, its collective and G; B and S
    assert ends[1] - ends[0] == 488 * both


@pytest.mark.parametrize(
    ("kind", "asked", "words"),
    [
        ("1F1B", Microbatches(63, 100), "with the same whole number of the 63 microbatches"),
        ("interleaved", Microbatches(64, 65), "the programs repeat every 4 microbatches"),
    ],
)
def test_microbatches_that_do_not_fit_are_refused(kind, asked, words):
    with pytest.raises(FlintError, match=words):
        run_shortened(pipeline(kind, 4, 64), 8, CostsByName(1, 9), searched=0, microbatches=asked)


@pytest.mark.parametrize("kind", ["1F1B", "ZB-H1", "interleaved"])
def test_cost_does_not_grow_with_microbatches(kind):
    costs = CostsByName(1, 100)
    few, many = (
        run_shortened(pipeline(kind, 3, microbatches), 6, costs, searched=0)[1].events
        for microbatches in (72, 216)
    )
    assert many <= few * 1.05


def test_stages_repeat_together():
    [together] = repeating(pipeline("1F1B", 4, 40), 8, searched=0)
    assert [(part.program, rate) for part, rate in together] == [(0, 1), (1, 1), (2, 1), (3, 1)]
