"""What regions merge and what they must keep apart."""

from __future__ import annotations

import networkx as nx
from hypothesis import given

from flint.graph.building import TableBuilder
from flint.graph.graph import Loop, NodeKind, WorkloadGraph
from flint.graph.verification import verify
from flint.graph.work import Role
from flint.passes.coarsen import merge_regions
from tests.passes.building import SCALAR, WEIGHT, Graph, names, training_step
from tests.strategies import workload_graphs


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


def work_awaited(graph: WorkloadGraph) -> dict[int, int]:
    """FLOPs that must be done before each communication (by table index) can start."""
    edges = nx.DiGraph()
    edges.add_nodes_from(range(len(graph)))
    edges.add_edges_from((before, i) for i in range(len(graph)) for before in graph.predecessors(i))
    flops = graph.flops_by_node().tolist()
    return {
        int(graph.detail[node.index]): sum(flops[i] for i in nx.ancestors(edges, node.index))
        for node in graph
        if node.kind == NodeKind.COMMUNICATION
    }


def test_a_gradient_is_reduced_without_waiting_for_the_next_layer() -> None:
    before = training_step(3)
    assert work_awaited(merged(before)) == work_awaited(before)


@given(workload_graphs(depth=0))
def test_no_communication_waits_for_more_or_less_work(graph: WorkloadGraph) -> None:
    assert work_awaited(merged(graph)) == work_awaited(graph)


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
