"""What regions merge and what they must keep apart."""

from __future__ import annotations

from flint.building import TableBuilder
from flint.graph import Loop, NodeKind, WorkloadGraph
from flint.passes.coarsen import merge_regions
from flint.verification import verify
from flint.work import Role
from tests.passes.building import SCALAR, WEIGHT, Graph, names, training_step


def merged(graph: WorkloadGraph) -> WorkloadGraph:
    result = merge_regions(graph)
    verify(result)
    return result


def test_compute_between_two_communications_is_one_node() -> None:
    g = Graph()
    x = g.all_reduce(g.input())
    for _ in range(3):
        x = g.elementwise(g.dot(x, g.input(WEIGHT)))
    graph = merged(g.finish(g.all_reduce(x)))
    assert names(graph) == ["all_reduce", "dot_general", "all_reduce"]
    assert graph[1].ops_merged == 6
    # Three products of 2 * 64 * 32 * 16, three additions.
    assert graph[1].flops == 3 * (2 * 64 * 32 * 16 + 64 * 32)


def test_bytes_of_a_region_are_those_of_its_members() -> None:
    g = Graph()
    before = g.finish(g.elementwise(g.elementwise(g.input())))
    (node,) = merged(before)
    assert node.work.read == int(before.bytes_read.sum())
    assert node.work.written == int(before.bytes_written.sum())


def test_what_a_communication_need_not_wait_for_stays_apart() -> None:
    """The next layer's backward pass must not delay the reduction of this layer's gradient."""
    before = training_step(3)
    after = merged(before)
    assert [n.op for n in after if n.kind == NodeKind.COMMUNICATION] == [
        n.op for n in before if n.kind == NodeKind.COMMUNICATION
    ]
    for graph in (before, after):
        reductions = [n for n in graph if n.op == "reduce_scatter"]
        # The last layer's gradient needs all three gathers, but no product of the pass behind it.
        assert len(reductions) == 3
    flops = {(n.op, m.op): m.flops for n in after if n.op == "reduce_scatter" for m in n.inputs}
    assert flops  # each reduction has its own region before it


def test_independent_chains_with_the_same_neighbours_are_one_region() -> None:
    g = Graph()
    x = g.all_reduce(g.input())
    left, right = g.reduce(g.elementwise(x)), g.reduce(g.elementwise(x))
    both = g.elementwise(left, right, of=SCALAR)
    graph = merged(g.finish(g.all_reduce(both, SCALAR)))
    assert [node.kind.name for node in graph] == ["COMMUNICATION", "COMPUTE", "COMMUNICATION"]


def test_a_loop_stays_between_regions() -> None:
    tables = TableBuilder()
    inner = Graph(tables)
    body = inner.finish(inner.elementwise(inner.elementwise(inner.input())))
    outer = Graph(tables)
    x = outer.elementwise(outer.elementwise(outer.input()))
    (y,) = outer.builder.loop(Loop(body, 1, 3), (x,))
    graph = merged(outer.finish(outer.elementwise(outer.elementwise(y))))
    assert names(graph) == ["add", "while", "add"]
    assert len(graph.loops[0].body) == 1


def test_carried_values_that_were_communicated_are_kept_apart_in_the_body() -> None:
    """``a`` carries the last iteration's all-reduce, ``b`` does not: ``b`` must not wait for it."""
    tables = TableBuilder()
    inner = Graph(tables)
    a, b = inner.input(), inner.input()
    of_a, of_b = inner.elementwise(a, name="of_a"), inner.elementwise(b, name="of_b")
    body = inner.finish(inner.all_reduce(of_a), of_b)
    outer = Graph(tables)
    results = outer.builder.loop(Loop(body, 2, 3), (outer.input(), outer.input()))
    graph = merged(outer.finish(*results))
    assert sorted(names(graph.loops[0].body)) == ["all_reduce", "of_a", "of_b"]


def test_a_region_is_named_after_the_member_with_most_flops() -> None:
    g = Graph()
    x = g.op("sort", Role.OPAQUE, (g.dot(g.elementwise(g.input()), g.input(WEIGHT)),))
    (node,) = merged(g.finish(x))
    assert (node.op, node.role) == ("dot_general", Role.CONTRACTION)
