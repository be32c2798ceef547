"""Loops by a few iterations: the same result to the tick as all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flint.cost.prices import Prices
from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import Loop, WorkloadGraph, with_tables
from flint.graph.instance_count import instances_of
from flint.graph.work import Role, Unit, WorkItem
from flint.mesh.groups import StridedGroups, along_axes
from flint.mesh.mesh import Mesh
from flint.simulation.actors import build_actors
from flint.simulation.durations import Costs
from flint.simulation.loop_shortening import least, left_out, shorten
from flint.simulation.machine import run
from flint.simulation.repeating import repeating
from flint.simulation.shortened_run import run_shortened
from flint.simulation.steady_state import steady
from tests.converters.chakra.write.cases import MESH, any_communication
from tests.graph.unrolling.random_graphs import programs
from tests.simulation.same_times import assert_same_times
from tests.simulation.test_simulate import BIG, PRODUCT, product, workload_of
from tests.support.shared import examples


def lengthened(graph: WorkloadGraph, trips: int) -> WorkloadGraph:
    """Every outermost loop ``trips`` iterations long."""
    return replace(graph, loops=tuple(replace(loop, trip_count=trips) for loop in graph.loops))


class RandomCosts(Costs):
    """Long-tailed durations that depend on the node, not on the iteration."""

    def __init__(self, seed: int, beside: float = 1.0) -> None:
        system = load_system("dgx-h100")
        kernel = replace(system.accelerator.kernel, beside_communication=beside)
        accelerator = replace(system.accelerator, kernel=kernel)
        super().__init__(Prices(replace(system, accelerator=accelerator)))
        self.seed = seed

    def ticks(self, item, unrolled, emission, rank):
        table = np.exp(np.random.default_rng(self.seed).uniform(0, 5, int(unrolled.start[-1])))
        template = unrolled.template[emission.instance]
        return (table[template] + 3 * emission.part).astype(np.int64)


@given(
    programs(any_communication),
    st.integers(14, 40),
    st.integers(0, 1 << 16),
    st.sampled_from([1.0, 0.5, 0.7]),
)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_loops_take_as_long_as_all_their_iterations(graph, trips, seed, beside):
    graph = lengthened(graph, trips)
    everyone, costs = [(graph, np.arange(MESH.size))], RandomCosts(seed, beside)
    actors = build_actors(
        everyone, MESH.size, costs.ticks, costs=costs.columns, beside=costs.beside
    )
    full = run(actors.columns, actors.members)
    assert_same_times(actors, full, *run_shortened(everyone, MESH.size, costs))


def training(mesh: Mesh, trips: int, lookahead: int | None, products: int = 3) -> WorkloadGraph:
    """Per layer an all-gather of its weights, products, a reduce-scatter of their gradient."""
    tables = TableBuilder()
    body = GraphBuilder(tables)
    value, weight = body.input(tables.type(BIG)), body.input(tables.type(BIG))
    groups = along_axes(mesh, ("data",))
    shard, whole = (BIG.bytes // 8,), (BIG.bytes,)
    gather = Communication("all_gather", None, groups, None, shard, whole, ("bf16",))
    scatter = Communication("reduce_scatter", "add", groups, None, whole, shard, ("bf16",))
    (gathered,) = body.communication(gather, (weight,), (BIG,))
    made = value
    for _ in range(products):
        made = product(body, made)
    (made,) = body.compute("dot_general", Role.CONTRACTION, (made, gathered), (BIG,), PRODUCT)
    body.communication(scatter, (made,), (BIG,))
    outer = GraphBuilder(tables)
    start, weights = outer.input(tables.type(BIG)), outer.input(tables.type(BIG))
    loop = Loop(body.finish((made,)), 1, trips, lookahead)
    results = outer.loop(loop, (start, weights))
    (last,) = outer.compute("dot_general", Role.CONTRACTION, results, (BIG,), PRODUCT)
    return with_tables(outer.finish((last,)), tables.finish())


@pytest.mark.parametrize("lookahead", [0, 1, 3])
def test_a_training_loop_comes_to_rest(lookahead):
    """A thousand layers are run by at most 18 of them, and the figures are those of all."""
    mesh = Mesh((8, 8), ("data", "model"))
    graph = training(mesh, 1000, lookahead)
    [loop] = repeating([(graph, np.arange(64))], 64)
    gone = left_out(loop, least(loop))
    short = shorten([(graph, np.arange(64))], [loop], [gone])
    assert instances_of(short.programs[0][0]) <= 18 * 6 + 1
    system = without(load_system("dgx-h100"), ("contention",))
    costs = Costs(Prices(system))
    actors = build_actors(short.programs, 64, costs.ticks, costs=costs.columns)
    assert steady(short.cuts[0], actors, run(actors.columns, actors.members)) is not None
    quick = workload_of(graph, mesh=mesh).simulate(system, granularity="op")
    assert quick.programs[0].classes[0].count == 4001
    full = [(graph, np.arange(64))]
    actors = build_actors(full, 64, costs.ticks, costs=costs.columns)
    ticks = run(actors.columns, actors.members).ticks
    assert quick.step_seconds == ticks / 1e12


def with_free_work(trips: int, behind: int) -> WorkloadGraph:
    """A loop that waits for its communication, and products behind it that need nothing of it."""
    tables = TableBuilder()
    body = GraphBuilder(tables)
    value, weight = (body.input(tables.type(BIG)) for _ in range(2))
    groups = along_axes(Mesh((8, 8), ("data", "model")), ("data",))
    gather = Communication(
        "all_gather", None, groups, None, (8 * BIG.bytes,), (64 * BIG.bytes,), ("bf16",)
    )
    (gathered,) = body.communication(gather, (value,), (BIG,))
    (made,) = body.compute("dot_general", Role.CONTRACTION, (gathered, weight), (BIG,), PRODUCT)
    outer = GraphBuilder(tables)
    starts = tuple(outer.input(tables.type(BIG)) for _ in range(2))
    results = outer.loop(Loop(body.finish((made,)), 1, trips, 0), starts)
    for _ in range(behind):
        product(outer, starts[1])
    return with_tables(outer.finish(results), tables.finish())


@pytest.mark.parametrize("behind", [1, 5])
def test_a_loop_comes_to_rest_when_what_stands_behind_it_has_run_in_its_gaps(behind):
    """A thousand iterations by few of them, and to the tick what all of them take."""
    costs = Costs(Prices(load_system("dgx-h100")))
    programs = [(with_free_work(1000, behind), np.arange(64))]
    everyone, short, repeated = run_shortened(programs, 64, costs)
    assert len(repeated) == 1
    actors = build_actors(programs, 64, costs.ticks, costs=costs.columns, beside=costs.beside)
    full = run(actors.columns, actors.members)
    assert short.events < full.events / 20
    assert_same_times(actors, full, everyone, short, repeated)


def slower_by_rank(ranks: int, trips: int, pairs: bool) -> list[tuple[WorkloadGraph, np.ndarray]]:
    """A loop on each rank, longer than that of the rank before; in pairs they meet in each
    iteration.
    """
    programs = []
    for rank in range(ranks):
        tables = TableBuilder()
        body = GraphBuilder(tables)
        value, weight = (body.input(tables.type(BIG)) for _ in range(2))
        rows = 4096 * (rank + 1)
        item = WorkItem(Unit.MATMUL, "bf16", 2 * rows * 4096**2, (1, rows, 4096, 4096))
        work = PRODUCT._replace(items=(item,))
        (made,) = body.compute("dot_general", Role.CONTRACTION, (value, weight), (BIG,), work)
        if pairs:
            groups = StridedGroups(ranks, ((2, 1),))
            size = (BIG.bytes,)
            meet = Communication("all_reduce", "add", groups, None, size, size, ("bf16",))
            (made,) = body.communication(meet, (made,), (BIG,))
        outer = GraphBuilder(tables)
        starts = tuple(outer.input(tables.type(BIG)) for _ in range(2))
        results = outer.loop(Loop(body.finish((made,)), 1, trips, 0), starts)
        graph = with_tables(outer.finish(results), tables.finish())
        programs.append((graph, np.array([rank])))
    return programs


@pytest.mark.parametrize("pairs", [False, True])
def test_ranks_that_never_meet_come_to_rest_each_at_its_own_pace(pairs):
    """All differently slow, so that the states of all of them together never recur."""
    costs = Costs(Prices(load_system("dgx-h100")))
    programs = slower_by_rank(6, 200, pairs)
    everyone, short, repeated = run_shortened(programs, 6, costs)
    assert len(repeated) == (3 if pairs else 6)
    actors = build_actors(programs, 6, costs.ticks, costs=costs.columns, beside=costs.beside)
    full = run(actors.columns, actors.members)
    assert len({int(end.max()) for end in full.end}) == (3 if pairs else 6)
    assert_same_times(actors, full, everyone, short, repeated)


def test_cost_is_linear_in_ranks_that_never_meet():
    costs = Costs(Prices(load_system("dgx-h100")))
    few, many = (
        run_shortened(slower_by_rank(ranks, 1000, False), ranks, costs)[1].events
        for ranks in (4, 16)
    )
    assert many == 4 * few


def test_cost_does_not_grow_with_iterations():
    mesh = Mesh((8, 8), ("data", "model"))
    few, many = (
        run_shortened(
            [(training(mesh, trips, 0), np.arange(64))], 64, Costs(Prices(load_system("dgx-h100")))
        )[1].events
        for trips in (1000, 1_000_000)
    )
    assert abs(few - many) <= 6 * 6  # at most a multiple of the periods more


@pytest.mark.parametrize("trips", [10**9, 10**18])
def test_figures_of_endless_loops_are_exactly_linear(trips):
    """What the steady state adds per layer, times the layers, whatever 64 bits can hold."""
    mesh = Mesh((8, 8), ("data", "model"))
    few, more, all_ = (
        workload_of(training(mesh, count, 0), mesh=mesh).simulate("dgx-h100", granularity="op")
        for count in (1000, 1006, trips)
    )
    for name in ("step_seconds", "compute_seconds", "exposed_communication_seconds", "flops"):
        a, b, found = (getattr(result.figures, name) for result in (few, more, all_))
        slope = (b - a) / 6
        assert found == pytest.approx(a + (trips - 1000) * slope, rel=1e-6), name
    assert all_.figures.flops == few.figures.flops // 4001 * (4 * trips + 1)
    counts = sum(row.count for row in all_.programs[0].classes)
    assert counts == pytest.approx(6 * trips + 1)


def test_values_that_swap_are_not_shortened():
    tables = TableBuilder()
    body = GraphBuilder(tables)
    a, b = body.input(tables.type(BIG)), body.input(tables.type(BIG))
    product(body, a)
    outer = GraphBuilder(tables)
    starts = outer.input(tables.type(BIG)), outer.input(tables.type(BIG))
    results = outer.loop(Loop(body.finish((b, a)), 2, 100), starts)
    graph = with_tables(outer.finish(results), tables.finish())
    assert repeating([(graph, np.arange(64))], 64) == []
