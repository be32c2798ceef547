"""Issue order of small programs whose right order is known."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from flint.graph.graph import NodeKind, WorkloadGraph
from flint.passes.order import issue_order
from flint.passes.permute import permuted
from tests.passes.building import SHARD, WEIGHT, Graph, names, training_step
from tests.strategies import workload_graphs


def steps(graph: WorkloadGraph) -> dict[str, int]:
    return {name: place for place, name in enumerate(names(graph))}


def test_weights_are_gathered_just_before_their_first_use() -> None:
    graph = issue_order(training_step(6))
    gathers = [node for node in graph if node.op == "all_gather"]
    for gather in gathers:
        first_use = min(user.index for user in gather.users)
        between = [graph[i].op for i in range(gather.index + 1, first_use)]
        # What may stand between is the one op of the same step: the activation before.
        assert len(between) <= 1
        assert not any(name.startswith(("dot", "all", "reduce")) for name in between)


def test_gradients_are_reduced_as_soon_as_they_are_there() -> None:
    graph = issue_order(training_step(6))
    at = steps(graph)
    reductions = [node for node in graph if node.op == "reduce_scatter"]
    made = [node.inputs[0].index for node in reductions]
    # Last layer first, each before the backward pass of the layer after next.
    assert made == sorted(made)
    for layer, reduction in zip(reversed(range(6)), reductions, strict=True):
        assert at[f"backward{layer}"] < reduction.index
        if layer >= 2:
            assert reduction.index < at[f"backward{layer - 2}"]


def test_ordering_an_ordered_graph_changes_nothing() -> None:
    graph = training_step(4)
    again = issue_order(issue_order(graph))
    assert names(again) == names(issue_order(graph))


def test_a_prepared_weight_waits_with_its_gather() -> None:
    """A transpose of a gathered weight neither grows nor frees: it must not pull the gather up."""
    g = Graph()
    x, shard = g.input(), g.input(SHARD)
    prepared = g.move(g.all_gather(shard), WEIGHT, WEIGHT)
    for _ in range(5):
        x = g.elementwise(x)
    graph = issue_order(g.finish(g.dot(x, prepared)))
    at = steps(graph)
    # One step each before the product, among the last elementwise ops.
    assert at["all_gather"] >= 3
    assert at["transpose"] > at["all_gather"]


def test_communications_come_first_among_ops_of_one_step() -> None:
    g = Graph()
    x = g.dot(g.input(), g.input(WEIGHT))
    outputs = [g.elementwise(x), g.all_reduce(x)]
    assert names(issue_order(g.finish(*outputs))) == ["dot_general", "all_reduce", "add"]


def test_what_feeds_a_communication_comes_before_what_does_not() -> None:
    g = Graph()
    x = g.dot(g.input(), g.input(WEIGHT))
    other = g.reduce(g.elementwise(x, name="other"))
    feeds = g.all_reduce(g.elementwise(x, name="feeds"))
    order = names(issue_order(g.finish(other, feeds)))
    assert order.index("feeds") < order.index("other")


@given(workload_graphs(depth=0))
def test_permuting_back_gives_the_graph(graph: WorkloadGraph) -> None:
    order = np.arange(len(graph))[::-1].copy()
    back = permuted(permuted(graph, order), order)
    for name in ("kind", "op", "operand", "operand_ptr", "order_node", "outputs", "work_flops"):
        assert getattr(back, name).tolist() == getattr(graph, name).tolist()


def test_permuting_moves_operands_results_and_work_along() -> None:
    g = Graph()
    a, b = g.input(), g.input(WEIGHT)
    first = g.elementwise(a)
    second = g.dot(a, b)
    graph = permuted(g.finish(first, second), np.array([1, 0]))
    assert names(graph) == ["dot_general", "add"]
    assert [graph[int(graph.producer[v])].op for v in graph.outputs] == ["add", "dot_general"]
    assert graph[0].operands == (0, 1)
    assert graph[0].flops == 2 * 64 * 32 * 16
    assert graph[0].kind == NodeKind.COMPUTE
