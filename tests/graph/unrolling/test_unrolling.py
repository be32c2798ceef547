"""Unrolling: against an interpreter on random programs, and by hand where a mistake is likely."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import EdgeKind, Loop, NodeKind, WorkloadGraph
from flint.graph.instance_count import MAX_INSTANCES, instances_of
from flint.graph.unrolling import ABSENT, CHAINED, UNCHAINED, unroll
from flint.graph.work import Role
from flint.mesh.groups import everybody
from tests.graph.unrolling.naive import Naive
from tests.graph.unrolling.random_graphs import TYPE, WORK, programs

REDUCE = Communication("all_reduce", "add", everybody(4), None, (16,), (16,), ("f32",))


@given(programs(), st.sampled_from(["own", 0, 1, None]), st.data())
def test_unrolling_equals_interpreting(graph, lookahead, data):
    count = len(graph.tables.communications)
    codes = st.sampled_from([ABSENT, UNCHAINED, CHAINED])
    presence = data.draw(st.lists(codes, min_size=count, max_size=count))
    naive = Naive(lookahead, presence)
    naive.run(graph, [None] * graph.inputs)

    unrolled = unroll(graph, lookahead, presence=np.array(presence, np.int8))

    assert len(unrolled) == len(naive.nodes) == instances_of(graph)
    for i, (owner, node, iteration) in enumerate(naive.nodes):
        found, index, repetition = unrolled.locate(i)
        assert found is owner and (index, repetition) == (node, iteration)
        low, high = unrolled.ptr[i : i + 2]
        pairs = list(
            zip(unrolled.deps[low:high].tolist(), unrolled.dep_kind[low:high].tolist(), strict=True)
        )
        assert pairs == sorted(naive.deps[i])
        assert unrolled.kind[i] == owner.kind[node]
        is_communication = owner.kind[node] == NodeKind.COMMUNICATION
        assert unrolled.detail[i] == (owner.detail[node] if is_communication else -1)


def _deps(graph: WorkloadGraph, i: int, lookahead: int | None = None) -> list[int]:
    unrolled = unroll(graph, lookahead)
    return unrolled.deps[unrolled.ptr[i] : unrolled.ptr[i + 1]].tolist()


def _loop_then_sink(build_body, carried: int, trips: int, lookahead: int | None = 0):
    """Nodes 0 .. carried-1 make the initial values, then the loop, then one node per result."""
    tables = TableBuilder()
    outer = GraphBuilder(tables)
    start = outer.input(tables.type(TYPE))
    initial = []
    for _ in range(carried):
        initial += outer.compute("iota", Role.ELEMENTWISE, (start,), (TYPE,), WORK)
    body = GraphBuilder(tables)
    arguments = [body.input(tables.type(TYPE)) for _ in range(carried)]
    loop = Loop(body.finish(build_body(body, arguments)), carried, trips, lookahead)
    results = outer.loop(loop, initial)
    for result in results:
        outer.compute("negate", Role.ELEMENTWISE, (result,), (TYPE,), WORK)
    return outer.finish(results)


@pytest.mark.parametrize(
    ("trips", "expected"), [(0, [0, 1]), (1, [1, 0]), (2, [0, 1]), (7, [1, 0])]
)
def test_a_swap_alternates(trips, expected):
    graph = _loop_then_sink(lambda body, args: (args[1], args[0]), 2, trips)
    assert [_deps(graph, 2 + i) for i in range(2)] == [[expected[0]], [expected[1]]]


def test_a_shift_register_hands_the_made_value_on_step_by_step():
    def body(builder, args):
        (made,) = builder.compute("add", Role.ELEMENTWISE, (args[2],), (TYPE,), WORK)
        return (made, args[0], args[1])

    graph = _loop_then_sink(body, 3, 5)
    # Instances 0-2 initial, 3-7 the five additions.  Addition k reads what entered two steps before
    # its own step's predecessor: the initial values 2, 1, 0, then additions 0 and 1.
    assert [_deps(graph, 3 + k) for k in range(5)] == [[2], [1], [0], [3], [4]]
    assert [_deps(graph, 8 + i) for i in range(3)] == [[7], [6], [5]]


def test_a_counted_gather_waits_for_the_end_of_the_iteration_before():
    def body(builder, args):
        (gathered,) = builder.communication(REDUCE, (args[0],), (TYPE,))
        builder.compute("dot", Role.CONTRACTION, (gathered,), (TYPE,), WORK)
        return (args[0],)

    graph = _loop_then_sink(body, 1, 4)
    # Instance 0 is the initial value; iteration k is the gather 1 + 2k and its consumer 2 + 2k.
    assert [_deps(graph, 1 + 2 * k, 0) for k in range(4)] == [[0], [0, 2], [0, 4], [0, 6]]
    assert [_deps(graph, 1 + 2 * k, 1) for k in range(4)] == [[0], [0], [0, 2], [0, 4]]
    assert [_deps(graph, 1 + 2 * k, None) for k in range(4)] == [[0]] * 4


def test_a_backward_edge_is_refused_by_name():
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    start = builder.input(tables.type(TYPE))
    builder.compute("add", Role.ELEMENTWISE, (start,), (TYPE,), WORK, [(1, EdgeKind.ORDER)])
    builder.compute("negate", Role.ELEMENTWISE, (start,), (TYPE,), WORK)
    with pytest.raises(FlintError, match=r"add \(node 0\) waits for negate \(node 1\)"):
        unroll(builder.finish(()))


def test_a_runaway_trip_count_is_refused_before_anything_is_allocated():
    graph = _loop_then_sink(
        lambda body, args: body.compute("add", Role.ELEMENTWISE, (args[0],), (TYPE,), WORK),
        1,
        MAX_INSTANCES + 1,
    )
    with pytest.raises(FlintError, match="smaller trip count"):
        unroll(graph)


def test_work_in_python_does_not_grow_with_the_trip_count(monkeypatch):
    def body(builder, args):
        return builder.compute("add", Role.ELEMENTWISE, (args[0],), (TYPE,), WORK)

    short = _loop_then_sink(body, 1, 2)
    loop = replace(short.loops[0], trip_count=20_000)
    long = replace(short, loops=(loop,))
    calls = {}
    for name, graph in (("short", short), ("long", long)):
        count = 0

        def tracer(frame, event, argument):
            nonlocal count
            count += 1

        import sys

        sys.setprofile(tracer)
        try:
            unroll(graph)
        finally:
            sys.setprofile(None)
        calls[name] = count
    assert calls["long"] <= calls["short"] + 5
