"""Passes in loops: weights are gathered ahead, nothing is sent or computed twice."""

from __future__ import annotations

import pytest

from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import Loop, NodeKind
from flint.graph.unrolling import unroll
from flint.graph.work import Role, Work
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import all_ranks
from flint.passes.what_if import transform
from flint.workload.programs import Program, ProgramInput, with_communicators
from flint.workload.workload import Workload
from tests.passes.building import INDEX, Graph
from tests.passes.totals import work
from tests.passes.what_if.layers import (
    BIG,
    MULTIPLY,
    PIECE,
    STACK,
    payload,
    sizes,
    slowed,
)


def looped(tables, once, layers):
    """A workload of 8 ranks that runs a body with 2 carried values that many times."""
    outer = GraphBuilder(tables)
    operands = [outer.input(int(i)) for i in once.input_type]
    graph = outer.finish(outer.loop(Loop(once, 2, layers), operands))
    inputs = tuple(ProgramInput(graph.type_of(i), "parameter") for i in range(graph.inputs))
    program = Program("main", graph, all_ranks(8), inputs)
    return Workload(Mesh((8,), ("data",)), with_communicators((program,)))


def looped_layers(layers: int) -> Workload:
    """A loop that slices and gathers its iteration's weight, multiplies by it four times and
    reduces a gradient: the next gather comes after the reduction in the order of communications."""
    tables = TableBuilder()
    body = Graph(tables)
    counter, x, stacked = body.input(INDEX), body.input(BIG), body.input(STACK)
    cut = Work((), PIECE.bytes, PIECE.bytes)
    following = body.op("add", Role.ELEMENTWISE, (counter,), INDEX)
    index = body.op("remainder", Role.ELEMENTWISE, (counter,), INDEX)
    own = body.op("negate", Role.ELEMENTWISE, (x, index), BIG)
    piece = body.op("dynamic_slice", Role.MOVEMENT, (stacked, index), PIECE, cut)
    weight = body.communicate("all_gather", piece, PIECE, BIG)
    own = body.op("dot_general", Role.CONTRACTION, (own, weight), BIG, MULTIPLY)
    for _ in range(3):
        own = body.op("dot_general", Role.CONTRACTION, (own, weight), BIG, MULTIPLY)
    body.communicate("reduce_scatter", own, BIG, PIECE)
    once = body.builder.finish((following, own))
    return looped(tables, once, layers)


@pytest.mark.parametrize("by", [1, 2, 3, 11, 12, 50])
def test_loops_gather_ahead_without_another_byte_or_flop(by):
    graph = looped_layers(12).graph
    after = transform(graph, [f"hoist:by={by}"])
    ahead = min(by, 11)
    assert payload(after) == payload(graph)
    assert payload(after)["all_gather in"] == 12 * PIECE.bytes
    assert work(after) == work(graph)
    assert [loop.trip_count for loop in after.loops] == [12 - ahead, ahead]
    before = [node.op for node in after if node.kind != NodeKind.LOOP]
    assert before.count("dynamic_slice") == before.count("all_gather") == ahead
    first, second = (loop.body for loop in after.loops)
    assert [kind for kind, _ in sizes(first)] == ["all_gather", "reduce_scatter"]
    assert [kind for kind, _ in sizes(second)] == ["reduce_scatter"]
    # Other products of this iteration's weight read what is carried and not the gather.
    unrolled = unroll(after)
    ops = [unrolled.graphs[0].tables.ops[i] for i in unrolled.column("op")[unrolled.template]]
    gathers = [i for i, op in enumerate(ops) if op == "all_gather"]
    readers = [
        {int(c) for c in unrolled.consumer[(unrolled.deps == i) & (unrolled.dep_kind == 0)]}
        for i in gathers
    ]
    products = [i for i, op in enumerate(ops) if op == "dot_general"]
    assert readers == [set(products[4 * i : 4 * i + 4]) for i in range(12)]


def test_a_loop_that_gathers_ahead_is_shorter_and_takes_a_weight_more():
    workload = looped_layers(12)
    plain, ahead = workload.simulate(), workload.simulate(passes=["hoist:by=1"])
    assert ahead.step_seconds < plain.step_seconds
    assert ahead.exposed_communication_seconds < plain.exposed_communication_seconds
    assert ahead.communication_seconds == pytest.approx(plain.communication_seconds)
    assert ahead.peak_memory_bytes > plain.peak_memory_bytes
    slow = slowed(1e-3)
    before, after = workload.simulate(slow), workload.simulate(slow, passes=["hoist:by=1"])
    assert 1 - after.step_seconds / before.step_seconds < 0.02


def tensor_parallel_layers(layers: int) -> Workload:
    """A loop in which each of two products gathers its weight, and an all-reduce stands between
    them, which the second product needs."""
    tables = TableBuilder()
    body = Graph(tables)
    counter, x, stacked = body.input(INDEX), body.input(BIG), body.input(STACK)
    cut = Work((), PIECE.bytes, PIECE.bytes)
    for number in range(2):
        piece = body.op("dynamic_slice", Role.MOVEMENT, (stacked, counter), PIECE, cut)
        weight = body.communicate("all_gather", piece, PIECE, BIG)
        x = body.op("dot_general", Role.CONTRACTION, (x, weight), BIG, MULTIPLY)
        if not number:
            x = body.communicate("all_reduce", x, BIG, BIG)
    following = body.op("add", Role.ELEMENTWISE, (counter,), INDEX)
    once = body.builder.finish((following, x))
    return looped(tables, once, layers)


def test_gathers_ahead_keep_their_place_among_other_communication():
    """What an iteration waits for does not stand behind all gathers of a later one."""
    workload = tensor_parallel_layers(12)
    first, second = (loop.body for loop in transform(workload.graph, ["hoist:by=2"]).loops)
    assert [kind for kind, _ in sizes(first)] == ["all_gather", "all_reduce", "all_gather"]
    assert [kind for kind, _ in sizes(second)] == ["all_reduce"]
    for factor in (1.0, 0.3, 0.1):
        system = slowed(factor)
        plain = workload.simulate(system).step_seconds
        assert workload.simulate(system, passes=["hoist:by=1"]).step_seconds < plain


def test_each_iteration_further_ahead_puts_its_gathers_before_everything_else():
    """A gather takes less than a product, so one iteration ahead hides all of them.  The first
    all-reduce waits until the gathers of k iterations are through, as communications have one
    order: each more makes the step longer by two gathers."""
    workload = tensor_parallel_layers(12)
    system = without(load_system("dgx-h100"), ("contention",))
    results = [workload.simulate(system, passes=[f"hoist:by={k}"]) for k in (2, 3, 4, 9)]
    rows = {row.name: row for row in results[0].programs[0].classes}
    gather = rows["all_gather over data"]
    one = gather.seconds / gather.count
    assert gather.count == 24 and one < rows["matmul"].seconds / rows["matmul"].count
    steps = [result.step_seconds for result in results]
    assert steps[1] - steps[0] == pytest.approx(2 * one)
    assert steps[2] - steps[1] == pytest.approx(2 * one)
    assert steps[3] - steps[2] == pytest.approx(10 * one)
