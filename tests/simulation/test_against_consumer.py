"""The simulator and the reference consumer of execution traces, with the same durations.

The consumer reads the files that the writer wrote and runs every rank by itself; the simulator runs
one rank per behaviour from the graph's columns.  Every rank must be done at the same tick.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flint.converters.chakra.read.trace_set import load_trace_set
from flint.converters.chakra.write.writer import write
from flint.cost.systems import load_system
from flint.execution.chains import CommunicationOrder
from flint.graph.communication import Communication
from flint.mesh.groups import along_axes
from flint.mesh.mesh import Mesh
from flint.simulation.actors import Actors, build_actors
from flint.simulation.machine import run
from tests.converters.chakra.consumer import execute
from tests.converters.chakra.write.cases import (
    GROUPS,
    MESH,
    PERMUTATIONS,
    any_communication,
    chain,
    communication,
)
from tests.converters.chakra.write.test_programs import MESH as STAGES
from tests.converters.chakra.write.test_programs import _stage as stage
from tests.graph.unrolling.random_graphs import programs
from tests.simulation.besides import beside
from tests.support.shared import examples

RANK, COMMUNICATOR = CommunicationOrder


def actors_of(programs, world: int, seed: int, order: CommunicationOrder = RANK) -> Actors:
    """The actors, with long-tailed random durations that depend on the instance only."""
    tables: dict[int, np.ndarray] = {}

    def durations(item, unrolled, emission, rank):
        del rank
        table = tables.setdefault(
            id(item.graph),
            np.exp(np.random.default_rng(seed).uniform(0, 6, len(unrolled))).astype(np.int64),
        )
        return table[emission.instance] + emission.part

    return build_actors(programs, world, durations, broadcast_tree=True, order=order)


def simulated(actors: Actors) -> np.ndarray:
    """When each rank is done."""
    # None takes anything from the links of another, as in the consumer.
    columns = [replace(one, beside=beside([1.0] * len(one), load=0)) for one in actors.columns]
    result = run(columns, actors.members)
    assert not result.stuck
    ends = np.array([end.max(initial=0) for end in result.end], np.int64)
    return ends[actors.behaviours.colour]


def consumed(programs, mesh: Mesh, actors: Actors, order: CommunicationOrder = RANK) -> np.ndarray:
    """When each rank is done, by files and consumer."""

    def durations(rank, ids):
        actor = actors.columns[int(actors.behaviours.colour[rank])]
        if not len(actor):  # the empty node of a rank that does nothing
            return np.zeros(len(ids), np.int64)
        return actor.ticks[ids.astype(np.int64) - 1]

    with tempfile.TemporaryDirectory() as name:
        write(programs, mesh, Path(name), system=load_system("dgx-h100"), communication_order=order)
        traces = load_trace_set(Path(name))
        result = execute(traces, durations=durations, communication_order=order)
    assert result.complete
    return result.time


@given(programs(any_communication), st.integers(0, 1 << 16))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_programs_end_at_the_same_tick_on_every_rank(graph, seed):
    everyone = [(graph, np.arange(MESH.size))]
    actors = actors_of(everyone, MESH.size, seed)
    assert simulated(actors).tolist() == consumed(everyone, MESH, actors).tolist()


def no_broadcast(draw: st.DrawFn) -> Communication:
    """A broadcast's messages take their group's slot here and that of messages there."""
    item = any_communication(draw)
    return replace(item, kind="all_reduce") if item.kind == "collective_broadcast" else item


@given(programs(no_broadcast), st.integers(0, 1 << 16))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_programs_with_an_order_for_each_communicator_end_at_the_same_tick(graph, seed):
    everyone = [(graph, np.arange(MESH.size))]
    actors = actors_of(everyone, MESH.size, seed, COMMUNICATOR)
    assert simulated(actors).tolist() == consumed(everyone, MESH, actors, COMMUNICATOR).tolist()


@pytest.mark.parametrize("order", CommunicationOrder)
@pytest.mark.parametrize("seed", range(4))
def test_pipeline_stages_end_at_the_same_tick(seed, order):
    both = [(stage(True, 5), np.arange(4)), (stage(False, 5), np.arange(4, 8))]
    actors = actors_of(both, 8, seed, order)
    assert len(actors.columns) == 2  # the four ranks of a stage behave alike
    assert simulated(actors).tolist() == consumed(both, STAGES, actors, order).tolist()


def test_ranks_that_behave_alike_are_played_once():
    """A ring and mesh axes treat all ranks alike; an open chain of six tells all of them apart."""
    ring = communication("collective_permute", peers=PERMUTATIONS[0])
    reduce = communication("all_reduce", groups=along_axes(MESH, ("data",)))
    open_chain = communication("collective_permute", peers=PERMUTATIONS[1])
    assert len(actors_of([(chain(ring, reduce), np.arange(6))], 6, 0).columns) == 1
    assert len(actors_of([(chain(open_chain), np.arange(6))], 6, 0).columns) == 6


def test_members_of_alike_groups_behave_alike():
    """Of GROUPS[3] = {4, 1, 0}, {5, 3} the members behave alike; rank 2 is in no group."""
    actors = actors_of([(chain(communication("all_reduce", groups=GROUPS[3])), np.arange(6))], 6, 1)
    assert actors.behaviours.colour.tolist() == [0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize("world", [64, 512, 4096])
def test_cost_does_not_grow_with_ranks(world):
    mesh = Mesh((world // 8, 8), ("data", "model"))
    items = [communication("all_reduce", groups=along_axes(mesh, (axis,))) for axis in mesh.axes]
    actors = actors_of([(chain(*items * 4), np.arange(world))], world, 0)
    assert [role.ranks for role in actors.info] == [world]
    assert run(actors.columns, actors.members).events == 10
