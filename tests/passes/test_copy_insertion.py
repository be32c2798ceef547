"""Copies in front of what overwrites a buffer that lives on; counts by hand."""

from __future__ import annotations

import pytest

from flint.graph.building import TableBuilder
from flint.graph.graph import Loop, NodeKind, WorkloadGraph
from flint.graph.verification import verify
from flint.graph.work import Role, Work
from flint.passes import apply
from flint.passes.copy_insertion import with_copies
from tests.passes.building import ACTIVATION, INDEX, SCALAR, SHARD, Graph

#: A buffer is an activation (8192 bytes) of which an update writes 256.
COPIED = (ACTIVATION.bytes, ACTIVATION.bytes, 0)
TRIPS = 3


def updating(tables: TableBuilder, swap: bool = False) -> Loop:
    """A loop that carries two buffers and updates the first one in every iteration."""
    g = Graph(tables)
    buffer, other, index, new = g.input(), g.input(), g.input(INDEX), g.input(SHARD)
    updated = g.update(buffer, new, index)
    body = g.finish(*((other, updated) if swap else (updated, g.elementwise(other))))
    return Loop(body, 2, TRIPS)


def looped(make, *, swap: bool = False, read_later: bool = False, kept: tuple[int, ...] = ()):
    """A loop over what ``make`` gives; then, if asked for, the first operand is read."""
    g = Graph()
    inputs = [g.input(), g.input(), g.input(INDEX), g.input(SHARD)]
    operands = make(g, inputs)
    results = g.builder.loop(updating(g.builder.tables, swap), operands)
    outputs = [*results, g.reduce(operands[0])] if read_later else results
    graph = with_copies(g.finish(*outputs), kept)
    verify(graph)
    return graph


def copies(graph: WorkloadGraph) -> list[tuple[int, int, int]]:
    works = [node.work for node in graph if node.op == "copy"]
    return [(work.read, work.written, work.aliased) for work in works]


def as_given(_g, inputs):
    return inputs


def test_a_donated_input_is_overwritten():
    g = Graph()
    buffer, index, new = g.input(), g.input(INDEX), g.input(SHARD)
    graph = g.finish(g.update(buffer, new, index))
    assert with_copies(graph, ()) is graph


def test_an_input_that_is_kept_is_copied_once_for_all_updates_behind_each_other():
    g = Graph()
    buffer, index, new = g.input(), g.input(INDEX), g.input(SHARD)
    first = g.update(buffer, new, index)
    graph = with_copies(g.finish(g.update(first, new, index)), {0})
    assert copies(graph) == [COPIED]
    assert graph[0].op == "copy"
    assert [node.work.aliased for node in apply(graph, "kernel")] == [0, 7936, 7936]


def test_each_update_of_a_kept_input_has_a_separate_copy():
    g = Graph()
    buffer, index, new = g.input(), g.input(INDEX), g.input(SHARD)
    outputs = [g.update(buffer, new, index), g.update(buffer, new, index)]
    assert copies(with_copies(g.finish(*outputs), {0})) == [COPIED] * 2


def test_a_view_of_a_kept_input_is_copied():
    g = Graph()
    buffer, index, new = g.input(), g.input(INDEX), g.input(SHARD)
    view = g.op("reshape", Role.ALIAS, (buffer,), work=Work((), 0, 0, ACTIVATION.bytes))
    assert copies(with_copies(g.finish(g.update(view, new, index)), {0})) == [COPIED]


@pytest.mark.parametrize(
    ("kept", "read_later", "count"),
    [((), False, 0), ((0,), False, 1), ((1,), False, 0), ((), True, 1), ((0,), True, 1)],
)
def test_a_loop_updates_a_copy_of_what_lives_on(kept, read_later, count):
    """What it replaces, and does not update (its second operand), has no copy."""
    graph = looped(as_given, kept=kept, read_later=read_later)
    assert copies(graph) == [COPIED] * count


def test_a_loop_that_hands_its_buffers_on_crosswise_updates_neither_in_place():
    assert copies(looped(as_given, swap=True, kept=(0, 1))) == []


def test_a_constant_is_copied_in_front_of_a_loop():
    graph = looped(lambda g, inputs: [g.constant(ACTIVATION), *inputs[1:]])
    assert copies(graph) == [COPIED]


def test_of_two_buffers_that_begin_as_one_one_is_copied():
    g = Graph()
    start, index, new = g.elementwise(g.input()), g.input(INDEX), g.input(SHARD)
    body = Graph(g.builder.tables)
    buffers, at, row = [body.input(), body.input()], body.input(INDEX), body.input(SHARD)
    inside = body.finish(*[body.update(buffer, row, at) for buffer in buffers])
    results = g.builder.loop(Loop(inside, 2, TRIPS), [start, start, index, new])
    assert copies(with_copies(g.finish(*results), ())) == [COPIED]


def test_zeros_of_two_buffers_are_made_twice():
    g = Graph()
    index, new = g.input(INDEX), g.input(SHARD)
    scalar = g.constant(SCALAR)
    zeros = g.op(
        "broadcast_in_dim", Role.MOVEMENT, (scalar,),
        work=Work((), SCALAR.bytes, ACTIVATION.bytes),
    )  # fmt: skip
    body = Graph(g.builder.tables)
    buffers, at, row = [body.input(), body.input()], body.input(INDEX), body.input(SHARD)
    inside = body.finish(*[body.update(buffer, row, at) for buffer in buffers])
    results = g.builder.loop(Loop(inside, 2, TRIPS), [zeros, zeros, index, new])
    graph = with_copies(g.finish(*results), ())
    verify(graph)
    made = [node.work for node in graph if node.op == "broadcast_in_dim"]
    assert [(work.read, work.written) for work in made] == [(4, ACTIVATION.bytes)] * 2
    [loop] = [node for node in graph if node.kind == NodeKind.LOOP]
    assert loop.operands[0] != loop.operands[1]


def nested(carried: bool) -> WorkloadGraph:
    """A loop in a loop, which carries the buffer or has it as an invariant."""
    g = Graph()
    operands = [g.input(), g.input(), g.input(INDEX), g.input(SHARD)]
    outer = Graph(g.builder.tables)
    state = [] if carried else [outer.input()]
    inside = [outer.input(), outer.input(), outer.input(INDEX), outer.input(SHARD)]
    results = outer.builder.loop(updating(g.builder.tables), inside)
    if carried:
        body, count = outer.finish(*results), 2
    else:
        body, count = outer.finish(outer.elementwise(*state, results[0])), 1
        operands = [g.input(), *operands]
    results = g.builder.loop(Loop(body, count, TRIPS), operands)
    return with_copies(g.finish(*results), range(5))


def test_a_buffer_through_two_loops_is_copied_once_in_front_of_both():
    graph = nested(carried=True)
    assert copies(graph) == [COPIED]
    assert copies(graph.loops[0].body) == []


def test_what_a_loop_reads_again_is_copied_in_every_iteration():
    graph = nested(carried=False)
    assert copies(graph) == []
    assert copies(graph.loops[0].body) == [COPIED]
