"""What depends on how often loops run is counted: costs stay, and numbers are exact."""

from __future__ import annotations

import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flint.errors import FlintError
from flint.graph.blocks import Edges, passed_on
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import EdgeKind, Loop, with_tables
from flint.graph.instance_count import MAX_INSTANCES, instances_of
from flint.graph.unrolling import unroll
from flint.graph.verification import verify
from flint.graph.work import Role
from tests.graph.unrolling.random_graphs import TYPE, WORK
from tests.support.shared import examples

#: Bytes that a refusal may take, whatever it refuses.
SMALL = 2**20


def nested(depth, trips):
    """Loops in each other, an addition in the innermost."""
    tables = TableBuilder()

    def block(level):
        builder = GraphBuilder(tables)
        value = builder.input(tables.type(TYPE))
        if level:
            (made,) = builder.loop(Loop(block(level - 1), 1, trips), [value])
        else:
            (made,) = builder.compute("add", Role.ELEMENTWISE, (value,), (TYPE,), WORK)
        return builder.finish((made,))

    return with_tables(block(depth), tables.finish())


def empty(carried, outputs, trips):
    """A loop that only hands on what it carries, and an addition of each result."""
    tables = TableBuilder()
    body = GraphBuilder(tables)
    inside = [body.input(tables.type(TYPE)) for _ in range(carried)]
    outer = GraphBuilder(tables)
    starts = []
    for _ in range(carried):
        starts += outer.compute("iota", Role.ELEMENTWISE, (), (TYPE,), WORK)
    loop = Loop(body.finish([inside[number] for number in outputs]), carried, trips)
    results = outer.loop(loop, starts)
    for result in results:
        outer.compute("add", Role.ELEMENTWISE, (result,), (TYPE,), WORK)
    return with_tables(outer.finish(results), tables.finish())


def taken(work):
    """The most bytes that were allocated at once."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def calls(work):
    """Calls of Python functions."""
    count = 0

    def traced(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(traced)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    ("depth", "trips"), [(1, 10**8), (1, 10**18), (24, 2), (40, 2), (3, 10**6)]
)
def test_what_is_too_large_is_refused_before_anything_is_made(depth, trips):
    graph = nested(depth, trips)
    assert instances_of(graph) == trips**depth

    def refused():
        with pytest.raises(FlintError, match=f"has {trips**depth:,} nodes .* runs {trips:,} times"):
            unroll(graph)

    assert trips**depth > MAX_INSTANCES
    assert taken(refused) < SMALL


@given(st.integers(1, 5), st.integers(0, 40), st.data())
@settings(max_examples=examples(100))
def test_a_body_without_nodes_is_raised_to_a_power(carried, trips, data):
    chosen = st.integers(0, carried - 1)
    outputs = data.draw(st.lists(chosen, min_size=carried, max_size=carried))
    values = list(range(carried))
    for _ in range(trips):
        values = [values[number] for number in outputs]
    assert (-1 - passed_on(-1 - np.array(outputs), carried, trips)).tolist() == values
    unrolled = unroll(empty(carried, outputs, trips))
    assert len(unrolled) == 2 * carried
    assert unrolled.deps.tolist() == values


def test_a_loop_without_nodes_costs_as_much_however_often_it_runs():
    swap = [1, 0]
    few = calls(lambda: unroll(empty(2, swap, 2**10)))
    many = calls(lambda: unroll(empty(2, swap, 2**60 + 1)))
    assert many == few
    assert unroll(empty(2, swap, 2**60 + 1)).deps.tolist() == [1, 0]
    assert unroll(empty(2, swap, 2**60)).deps.tolist() == [0, 1]


def test_dependencies_are_counted_before_they_are_made():
    """All of one million after all of another million."""
    edges = Edges()

    def refused():
        with pytest.raises(FlintError, match=r"has 1,000,000,000,000 dependencies"):
            edges.add(
                np.broadcast_to(np.int64(0), (10**6, 1)),
                np.broadcast_to(np.int64(0), (1, 10**6)),
                EdgeKind.DATA,
            )

    assert taken(refused) < SMALL


def test_more_iterations_than_anything_runs_are_refused():
    verify(nested(5, 10**18))
    with pytest.raises(FlintError, match=r"run more than 10\^100 times"):
        verify(nested(6, 10**18))


def test_a_nodes_flops_are_exact_beyond_64_bits():
    graph = nested(2, 10**18)
    assert graph[0].flops == 4 * 10**36


def test_counting_does_not_grow_with_the_trip_count():
    graph = nested(3, 2)

    def counted(trips):
        outer = replace(graph.loops[0], trip_count=trips)
        # The least of several: a collection of garbage calls what others have registered.
        return min(calls(lambda: instances_of(replace(graph, loops=(outer,)))) for _ in range(3))

    assert counted(10) == counted(10**18)
