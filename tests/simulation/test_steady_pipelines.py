"""Pipelines of many microbatches by a few of them: the same result to the tick as all of them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flint.execution.chains import CommunicationOrder
from flint.simulation import accounting
from flint.simulation.actors import build_actors
from flint.simulation.machine import run
from flint.simulation.repeating import repeating
from flint.simulation.running import run_shortened
from tests.simulation.pipelines import SCHEDULES, CostsByName, pipeline
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
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_pipelines_take_as_long_as_all_their_microbatches(
    kind, stages, rounds, longest, seed, order, in_order
):
    programs, world = pipeline(kind, stages, 2 * rounds * stages, in_order=in_order), 2 * stages
    costs = CostsByName(seed, longest)
    actors = build_actors(programs, world, costs.ticks, costs=costs.columns, order=order)
    full = run(actors.columns, actors.members)
    assert not full.stuck
    short_actors, short, repeated = run_shortened(programs, world, costs, order, searched=0)
    assert len(short_actors.columns) == len(actors.columns)
    for actor, role in enumerate(short_actors.info):
        assert accounting.last_end(short, repeated, (actor,)) == int(full.end[actor].max(initial=0))
        few = accounting._Spent(role, short, actor, repeated)
        every = accounting._Spent(actors.info[actor], full, actor, [])
        assert (few.compute, few.communication) == (every.compute, every.communication)
        assert few.exposed_ticks == every.exposed_ticks
        assert few.times.sum() == every.times.sum()


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
