"""Pass-through ops vanish value by value."""

from __future__ import annotations

from flint.graph.building import TableBuilder
from flint.graph.graph import EdgeKind, Loop, WorkloadGraph
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


def _held_back(graph: WorkloadGraph) -> set[str]:
    """Ops that the one called "use" waits for, by whatever way."""
    (use,) = [node for node in graph if node.op == "use"]
    found, left = set(), [use]
    while left:
        for node in left.pop().inputs:
            found.add(node.op)
            left.append(node)
    return found


def test_each_result_of_a_barrier_waits_for_all_operands() -> None:
    g = Graph()
    x = g.input()
    _, passed = g.barrier(g.all_reduce(x), g.elementwise(x))
    graph = resolve_aliases(g.finish(g.elementwise(passed, name="use")))
    assert _held_back(graph) == {"optimization_barrier", "all_reduce", "add"}


def test_an_input_behind_a_barrier_waits_for_the_other_operands() -> None:
    g = Graph()
    x = g.input()
    passed, _ = g.barrier(x, g.all_reduce(x))
    graph = resolve_aliases(g.finish(g.elementwise(passed, name="use")))
    assert "all_reduce" in _held_back(graph)


def test_a_barrier_of_one_nodes_results_says_nothing_and_vanishes() -> None:
    g = Graph()
    x = g.input()
    both = g.builder.compute("sort", Role.OPAQUE, (x,), (ACTIVATION, ACTIVATION), NO_WORK)
    first, second = g.barrier(*both)
    graph = resolve_aliases(g.finish(g.elementwise(first, second, name="use")))
    assert names(graph) == ["sort", "use"]


def test_a_barrier_of_a_loops_results_stays() -> None:
    """They are made by different nodes of its body: one may be there long before the other."""
    tables = TableBuilder()
    inner = Graph(tables)
    x, y = inner.input(), inner.input()
    body = inner.finish(inner.elementwise(x), inner.all_reduce(y))
    g = Graph(tables)
    first, _ = g.barrier(*g.builder.loop(Loop(body, 2, 4), (g.input(), g.input())))
    graph = resolve_aliases(g.finish(g.elementwise(first, name="use")))
    assert "optimization_barrier" in _held_back(graph)


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
