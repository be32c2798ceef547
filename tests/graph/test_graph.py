"""Columns and node views of a graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import EdgeKind, Loop, NodeKind, WorkloadGraph
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role
from flint.mesh.groups import everybody
from flint.mesh.mesh import Mesh
from flint.mesh.ranks import all_ranks
from flint.workload.programs import Program
from flint.workload.workload import Workload
from tests.passes.building import ACTIVATION, SCALAR, WEIGHT, Graph
from tests.strategies import workload_graphs


def small() -> WorkloadGraph:
    g = Graph()
    x, w = g.input(), g.input(WEIGHT)
    y = g.elementwise(x, x)
    z = g.dot(y, w)
    return g.finish(g.all_reduce(z, ACTIVATION), y)


def test_values_count_inputs_first_and_then_results() -> None:
    graph = small()
    assert (graph.inputs, graph.values, len(graph)) == (2, 5, 3)
    assert graph.producer.tolist() == [-1, -1, 0, 1, 2]
    assert graph.outputs.tolist() == [4, 2]
    assert [str(graph.type_of(value)) for value in range(2)] == ["64x32xf32", "32x16xf32"]


def test_a_workload_at_the_prompt_is_one_line() -> None:
    """Not its columns, tables and module."""
    ranks = all_ranks(4)
    program = Program("main", small(), ranks, (), (b"x" * 10**6, ".hlo.pb"))
    one = Workload(Mesh((4,), ("data",)), (program,))
    assert repr(one) == (
        "Workload(partitioned on data=4: Program('main' on 4 ranks, "
        "WorkloadGraph(3 nodes, 0 loops)))"
    )
    many = Workload(one.mesh, (program,) * 300)
    assert repr(many).endswith(", 297 more)") and len(repr(many)) < 400


def test_inputs_may_be_added_after_nodes() -> None:
    builder = GraphBuilder(TableBuilder())
    kind = builder.tables.type(ACTIVATION)
    op = builder.tables.op("add")
    first = builder.input(kind)
    (made,) = builder.node(NodeKind.COMPUTE, op, (first,), (kind,), role=Role.ELEMENTWISE)
    late = builder.input(builder.tables.type(WEIGHT))
    builder.node(NodeKind.COMPUTE, op, (late, made), (kind,), role=Role.ELEMENTWISE)
    graph = builder.finish((late, made))
    assert graph[0].operands == (0,)
    assert graph[1].operands == (1, 2)
    assert graph.outputs.tolist() == [1, 2]


def test_a_communication_is_an_entry_of_its_own_where_earlier_ones_were_taken_away() -> None:
    """One that was taken away is entered anew; what has come in its place keeps its number."""
    tables = TableBuilder()
    items = [
        Communication("all_reduce", "add", everybody(2), None, (size,), (size,), ("f32",))
        for size in (4, 8)
    ]
    assert [tables.communication(item) for item in (*items, items[0])] == [0, 1, 0]
    del tables.communications[0:]
    assert [tables.communication(item) for item in (items[1], items[0], items[1])] == [0, 1, 0]
    assert tables.communications == [items[1], items[0]]


def test_a_node_reads_like_an_object() -> None:
    add, dot, reduce = small()
    assert (dot.op, dot.kind, dot.role) == ("dot_general", NodeKind.COMPUTE, Role.CONTRACTION)
    assert [str(t) for t in dot.operand_types] == ["64x32xf32", "32x16xf32"]
    assert [node.op for node in dot.inputs] == ["add"]
    assert [node.op for node in add.users] == ["dot_general"]
    assert reduce.communication is not None
    assert reduce.communication.bytes_in == ACTIVATION.bytes
    assert (add.category, dot.category, reduce.category) == ("compute", "compute", "communication")


def test_edges_name_producer_result_and_kind() -> None:
    g = Graph()
    x = g.input()
    first = g.elementwise(x)
    g.elementwise(x, first, order=((0, EdgeKind.STREAM),))
    assert g.finish()[1].edges == (
        (-1, 0, 1, EdgeKind.DATA),
        (0, 0, 1, EdgeKind.DATA),
        (0, -1, 1, EdgeKind.STREAM),
    )


def test_work_of_a_loop_counts_its_iterations() -> None:
    tables = TableBuilder()
    inner = Graph(tables)
    body = inner.finish(inner.elementwise(inner.input()))
    middle = Graph(tables)
    (carried,) = middle.builder.loop(Loop(body, 1, 5), (middle.input(),))
    outer = Graph(tables)
    loop = Loop(middle.finish(carried), 1, 3)
    (result,) = outer.builder.loop(loop, (outer.input(),))
    graph = outer.finish(result)
    assert graph[0].flops == 3 * 5 * ACTIVATION.elements
    assert [times for _, times in graph.walk()] == [1, 3, 15]


def test_indexing_from_the_end_and_beyond_it() -> None:
    graph = small()
    assert graph[-1].op == "all_reduce"
    with pytest.raises(IndexError, match="node 3 of 3"):
        graph[3]


def test_transcendentals_are_counted_apart() -> None:
    from flint.graph.work import Unit, Work, WorkItem

    g = Graph()
    items = (WorkItem(Unit.VECTOR, "f32", 7), WorkItem(Unit.TRANSCENDENTAL, "f32", 5))
    g.op("sinh", Role.ELEMENTWISE, (g.input(SCALAR),), SCALAR, Work(items, 4, 4))
    graph = g.finish()
    assert graph.flops_by_node().tolist() == [7]
    assert graph.transcendentals_by_node().tolist() == [5]
    assert graph[0].work.items == items


@given(workload_graphs())
def test_views_and_columns_agree(graph: WorkloadGraph) -> None:
    for block, _ in graph.walk():
        assert sum(len(node.operands) for node in block) == len(block.operand)
        assert [v for node in block for v in node.results] == list(
            range(block.inputs, block.values)
        )
        for node in block:
            assert {before.index for before in node.inputs} == {
                edge.producer for edge in node.edges
            } - {-1}
            for user in node.users:
                assert set(node.results) & set(user.operands)
            assert node.work.flops == int(block.flops_by_node()[node.index])
        sizes = [block.type_of(value).bytes for value in range(block.values)]
        assert np.array_equal(block.value_bytes, np.array(sizes, dtype=np.int64))


def test_types_know_their_bytes() -> None:
    assert tensor_type((3, 5), "bf16").bytes == 30
    assert tensor_type((3,), "i4").bytes == 2
    assert tensor_type((), "token").bytes == 0
