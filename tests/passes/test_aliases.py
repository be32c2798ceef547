"""Pass-through ops vanish value by value."""

from __future__ import annotations

from flint.graph.building import TableBuilder
from flint.graph.graph import EdgeKind, Loop
from flint.graph.tensor_types import tensor_type
from flint.graph.verification import verify
from flint.graph.work import NO_WORK, Role
from flint.passes.aliases import resolve_aliases
from tests.passes.building import ACTIVATION, SHARD, Graph, names

FLAT = tensor_type((2048,), "f32")


def test_a_chain_of_reshapes_is_its_operand() -> None:
    g = Graph()
    x = g.input()
    flat = g.op("reshape", Role.ALIAS, (x,), FLAT)
    back = g.op("reshape", Role.ALIAS, (flat,))
    graph = resolve_aliases(g.finish(g.elementwise(back)))
    assert names(graph) == ["add"]
    assert graph[0].operands == (0,)


def test_each_result_of_a_barrier_depends_on_its_own_operand() -> None:
    g = Graph()
    x = g.input()
    slow, fast = g.all_reduce(x), g.elementwise(x)
    types = (ACTIVATION, ACTIVATION)
    _, passed = g.builder.compute("optimization_barrier", Role.ALIAS, (slow, fast), types, NO_WORK)
    graph = resolve_aliases(g.finish(slow, g.elementwise(passed, name="use")))
    (use,) = [node for node in graph if node.op == "use"]
    assert [node.op for node in use.inputs] == ["add"]


def test_an_output_that_renames_an_input_is_the_input() -> None:
    g = Graph()
    x = g.input()
    graph = resolve_aliases(g.finish(g.op("reshape", Role.ALIAS, (x,), FLAT)))
    assert len(graph) == 0
    assert graph.outputs.tolist() == [0]


def test_a_loop_that_passes_a_value_on_yields_its_input() -> None:
    tables = TableBuilder()
    inner = Graph(tables)
    x = inner.input()
    body = inner.finish(inner.op("reshape", Role.ALIAS, (x,), FLAT))
    outer = Graph(tables)
    (result,) = outer.builder.loop(Loop(body, 1, 4), (outer.input(),))
    graph = resolve_aliases(outer.finish(result))
    verify(graph)
    assert graph.loops[0].body.outputs.tolist() == [0]


def test_a_tuple_stays() -> None:
    g = Graph()
    pair = g.op("tuple", Role.ALIAS, (g.input(), g.input(SHARD)), tensor_type((2112,), "f32"))
    assert names(resolve_aliases(g.finish(pair))) == ["tuple"]


def test_consumers_inherit_what_an_alias_waited_for() -> None:
    g = Graph()
    x = g.input()
    first = g.all_reduce(x)
    edge = ((g.last, EdgeKind.ORDER),)
    renamed = g.op("reshape", Role.ALIAS, (g.elementwise(x),), FLAT, order=edge)
    again = g.op("reshape", Role.ALIAS, (renamed,))
    graph = resolve_aliases(g.finish(first, g.elementwise(again, name="use")))
    (use,) = [node for node in graph if node.op == "use"]
    assert [node.op for node in use.inputs] == ["all_reduce", "add"]


def test_who_waited_for_an_alias_waits_for_its_operand() -> None:
    g = Graph()
    x = g.input()
    g.op("reshape", Role.ALIAS, (g.all_reduce(x),), FLAT)
    late = g.elementwise(x, name="late", order=((g.last, EdgeKind.ORDER),))
    graph = resolve_aliases(g.finish(late))
    assert [(e.producer, e.kind) for e in graph[1].edges] == [
        (-1, EdgeKind.DATA),
        (0, EdgeKind.ORDER),
    ]
