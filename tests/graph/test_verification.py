"""A damaged graph is an error that names the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from flint.errors import FlintError
from flint.graph.building import TableBuilder
from flint.graph.graph import Conditional, EdgeKind, Loop, WorkloadGraph
from flint.graph.scalars import constant
from flint.graph.verification import verify
from tests.passes.building import ACTIVATION, SCALAR, WEIGHT, Graph
from tests.strategies import workload_graphs


def sound() -> WorkloadGraph:
    g = Graph()
    x = g.elementwise(g.input(), name="add")
    y = g.all_reduce(g.dot(x, g.input(WEIGHT)), order=((0, EdgeKind.ORDER),))
    return g.finish(y)


def changed(column: str, place: int, value: int) -> WorkloadGraph:
    graph = sound()
    copy = getattr(graph, column).copy()
    copy[place] = value
    return replace(graph, **{column: copy})


@given(workload_graphs())
def test_graphs_of_the_builder_are_sound(graph: WorkloadGraph) -> None:
    verify(graph)


@pytest.mark.parametrize(
    ("column", "place", "value", "message"),
    [
        ("operand", 0, 99, "node 0 .add.: operand 0 is value 99 of 5"),
        ("operand", 0, 3, "node 0 .add.: operand 0 comes from node 1"),
        ("order_node", 0, 2, "node 2 .all_reduce.: waits for node 2"),
        ("order_kind", 0, 0, "node 2 .all_reduce.: order edge kind 0"),
        ("detail", 0, 0, "node 0 .add.: a compute node has a detail"),
        ("detail", 2, 7, "node 2 .all_reduce.: detail of a communication"),
        ("bytes_read", 1, -1, "node 1 .dot_general.: bytes_read is negative"),
        ("ops_merged", 1, -1, "node 1 .dot_general.: ops_merged is negative"),
        ("work_flops", 1, -5, "node 1 .dot_general.: FLOP count -5"),
        ("work_gemm", 1, 4, "node 1 .dot_general.: work GEMM 4"),
        ("work_unit", 0, 9, "node 0 .add.: work unit 9"),
        ("result_type", 2, 50, "node 2 .all_reduce.: result type 50"),
        ("result_ptr", 1, 3, "node 1 .dot_general.: result_ptr decreases"),
        ("operand_ptr", 0, 1, "operand_ptr runs from 1"),
        ("kind", 0, 9, "node 0 .add.: kind outside"),
        ("source", 0, 5, "node 0 .add.: source outside"),
        ("op", 0, 70, "node 0 .[?].: op outside"),
        ("outputs", 0, 70, "output 0 is 70"),
        ("input_type", 1, 70, "input type 1 is 70"),
    ],
)
def test_damaged_column(column: str, place: int, value: int, message: str) -> None:
    with pytest.raises(FlintError, match=message):
        verify(changed(column, place, value))


def test_column_of_another_length() -> None:
    with pytest.raises(FlintError, match="column role has shape"):
        verify(replace(sound(), role=np.zeros(7, np.int8)))


def with_loop(change: Callable[[Loop], Loop]) -> WorkloadGraph:
    tables = TableBuilder()
    inner = Graph(tables)
    a, b = inner.input(), inner.input(SCALAR)
    body = inner.finish(inner.elementwise(a), b)
    outer = Graph(tables)
    results = outer.builder.loop(Loop(body, 2, 3), (outer.input(), outer.input(SCALAR)))
    graph = outer.finish(*results)
    return replace(graph, loops=(change(graph.loops[0]),))


def swapped(loop: Loop) -> Loop:
    return replace(loop, body=replace(loop.body, outputs=loop.body.outputs[::-1].copy()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda loop: replace(loop, trip_count=-1), "node 0 .while.: trip count -1"),
        (lambda loop: replace(loop, carried=3), "node 0 .while.: carries 3 of 2"),
        (lambda loop: replace(loop, carried=1), "node 0 .while.: results of"),
        (swapped, "node 0 .while.: its body yields"),
    ],
)
def test_damaged_loop(change: Callable[[Loop], Loop], message: str) -> None:
    verify(with_loop(lambda loop: loop))
    with pytest.raises(FlintError, match=message):
        verify(with_loop(change))


def test_an_error_in_a_body_names_the_way_to_it() -> None:
    def damage(loop: Loop) -> Loop:
        return replace(loop, body=replace(loop.body, operand=loop.body.operand + 40))

    with pytest.raises(FlintError, match=r"graph, body of node 0, node 0 .add.: operand 0"):
        verify(with_loop(damage))


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ((ACTIVATION, ACTIVATION), None),
        ((ACTIVATION, SCALAR), "node 0 .case.: operands of .* branch 1"),
    ],
)
def test_damaged_conditional(types: tuple[object, ...], message: str | None) -> None:
    tables = TableBuilder()
    branches = []
    for item in types:
        inner = Graph(tables)
        branches.append(inner.finish(inner.input(item)))  # type: ignore[arg-type]  # a TensorType
    outer = Graph(tables)
    conditional = Conditional(tuple(branches), constant(0))
    results = outer.builder.conditional(conditional, (outer.input(),), [tables.type(ACTIVATION)])
    graph = outer.finish(*results)
    if message is None:
        verify(graph)
    else:
        with pytest.raises(FlintError, match=message):
            verify(graph)
