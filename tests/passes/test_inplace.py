"""Updates in place and on copies."""

from __future__ import annotations

import pytest

from flint.graph.building import TableBuilder
from flint.graph.graph import EdgeKind, Loop, WorkloadGraph
from flint.graph.nodes import Node
from flint.graph.work import Role, Work
from flint.passes.update_aliasing import resolve_updates
from tests.passes.building import ACTIVATION, INDEX, SHARD, Graph

REST = ACTIVATION.bytes - SHARD.bytes


def the_update(graph: WorkloadGraph) -> Node:
    return next(node for node in graph if node.op == "dynamic_update_slice")


def is_in_place(node: Node) -> bool:
    moved = (node.work.read, node.work.written, node.work.aliased)
    if moved == (SHARD.bytes + INDEX.bytes, SHARD.bytes, REST):
        return True
    assert moved == (SHARD.bytes + INDEX.bytes + REST, SHARD.bytes + REST, 0)
    return False


def test_an_update_waits_for_earlier_readers() -> None:
    g = Graph()
    buffer, index, new = g.input(), g.input(INDEX), g.input(SHARD)
    read = g.reduce(buffer)
    graph = resolve_updates(g.finish(g.update(buffer, new, index), read))
    update = the_update(graph)
    assert is_in_place(update)
    assert [(e.producer, e.kind) for e in update.edges if e.kind != EdgeKind.DATA] == [
        (0, EdgeKind.ORDER)
    ]


def test_no_edge_where_data_flows_already() -> None:
    g = Graph()
    buffer, index = g.input(), g.input(INDEX)
    old = g.move(buffer, ACTIVATION, SHARD, "dynamic_slice")
    graph = resolve_updates(g.finish(g.update(buffer, old, index)))
    assert len(graph.order_node) == 0


def test_a_later_reader_forces_a_copy() -> None:
    g = Graph()
    buffer, index, new = g.input(), g.input(INDEX), g.input(SHARD)
    updated = g.update(buffer, new, index)
    graph = resolve_updates(g.finish(updated, g.reduce(buffer)))
    assert not is_in_place(the_update(graph))


def test_a_later_reader_of_a_view_forces_a_copy() -> None:
    g = Graph()
    buffer, index, new = g.input(), g.input(INDEX), g.input(SHARD)
    view = g.op("transpose", Role.MOVEMENT, (buffer,), work=Work((), 0, 0, ACTIVATION.bytes))
    updated = g.update(buffer, new, index)
    graph = resolve_updates(g.finish(updated, g.reduce(view)))
    assert not is_in_place(the_update(graph))


def test_an_output_that_is_updated_forces_a_copy() -> None:
    g = Graph()
    buffer, index, new = g.elementwise(g.input()), g.input(INDEX), g.input(SHARD)
    graph = resolve_updates(g.finish(g.update(buffer, new, index), buffer))
    assert not is_in_place(the_update(graph))


def test_a_constant_is_copied() -> None:
    g = Graph()
    buffer, index, new = g.constant(ACTIVATION), g.input(INDEX), g.input(SHARD)
    assert not is_in_place(the_update(resolve_updates(g.finish(g.update(buffer, new, index)))))


@pytest.mark.parametrize(("carried", "in_place"), [(True, True), (False, False)])
def test_a_loop_updates_what_it_carries_and_copies_what_it_reads_again(
    carried: bool, in_place: bool
) -> None:
    tables = TableBuilder()
    g = Graph(tables)
    buffer, other = g.input(), g.input()
    index, new = g.input(INDEX), g.input(SHARD)
    updated = g.update(buffer if carried else other, new, index)
    body = g.finish(updated)
    outer = Graph(tables)
    operands = [outer.input(), outer.input(), outer.input(INDEX), outer.input(SHARD)]
    result = outer.builder.loop(Loop(body, 1, 3), operands)
    graph = resolve_updates(outer.finish(*result))
    assert is_in_place(the_update(graph.loops[0].body)) is in_place
