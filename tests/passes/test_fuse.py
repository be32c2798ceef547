"""The rules of fusion, one by one."""

from __future__ import annotations

import pytest

from flint.graph.building import TableBuilder
from flint.graph.graph import EdgeKind, Loop, WorkloadGraph
from flint.graph.nodes import Node
from flint.graph.tensor_types import tensor_type
from flint.graph.verification import verify
from flint.graph.work import NO_WORK, Role, Unit, Work, WorkItem
from flint.passes.fuse import fuse_kernels
from flint.passes.rematerialize import IMMEDIATE_BYTES
from flint.passes.xla.fuse import fuse_as_xla
from tests.passes.building import ACTIVATION, INDEX, SCALAR, SHARD, WEIGHT, Graph

HALF = tensor_type((64, 32), "bf16")


def kernels(graph: WorkloadGraph) -> list[tuple[str, int]]:
    """(op, ops merged) of every kernel of ``graph`` fused."""
    fused = fuse_kernels(graph)
    verify(fused)
    return [(node.op, node.ops_merged) for node in fused]


def only(graph: WorkloadGraph) -> Node:
    fused = fuse_kernels(graph)
    verify(fused)
    (node,) = fused
    return node


def as_xla(graph):
    return [(node.op, node.ops_merged) for node in fuse_as_xla(graph)]


def test_a_chain_is_one_kernel_that_reads_its_inputs_and_writes_its_result() -> None:
    g = Graph()
    x, y = g.input(), g.input()
    node = only(g.finish(g.elementwise(g.elementwise(g.elementwise(x, y), x), name="tanh")))
    assert (node.op, node.ops_merged) == ("tanh", 3)
    # x is read once although two members use it.
    assert (node.work.read, node.work.written) == (2 * ACTIVATION.bytes, ACTIVATION.bytes)
    assert node.flops == 3 * ACTIVATION.elements
    assert len(node.work.items) == 1


def test_a_value_with_two_kernels_as_users_is_not_fused() -> None:
    g = Graph()
    shared = g.elementwise(g.input(), name="shared")
    graph = g.finish(g.reduce(shared), g.elementwise(shared))
    assert kernels(graph) == [("shared", 1), ("reduce", 1), ("add", 1)]


def test_xla_computes_a_value_that_two_kernels_use_in_both() -> None:
    g = Graph()
    shared = g.elementwise(g.input(), name="shared")
    graph = fuse_as_xla(g.finish(g.reduce(shared), g.move(shared, ACTIVATION, ACTIVATION)))
    # Both read the input; the shared op counts once, with its first user.
    assert [(node.op, node.ops_merged) for node in graph] == [("reduce", 2), ("transpose", 1)]
    assert [node.work.read for node in graph] == [ACTIVATION.bytes, ACTIVATION.bytes]


def test_a_value_of_much_larger_ones_is_written_and_read() -> None:
    g = Graph()
    large = tensor_type((64, 1 << 20), "bf16")
    sources = [g.input(large) for _ in range(4)]
    shared = g.elementwise(*sources, of=large, name="shared")
    graph = g.finish(*(g.move(shared, large, large, name=f"user{n}") for n in range(3)))
    # Of four sources and three users: 4 + 1 + 3 against 3 * 4, in units of one tensor.
    assert as_xla(graph) == [("shared", 1), ("user0", 1), ("user1", 1), ("user2", 1)]


def test_rows_that_are_reduced_and_read_again_are_one_kernel() -> None:
    """A softmax's denominator: x is read once, as by XLA's softmax kernels."""
    g = Graph()
    x = g.input(tensor_type((4096, 1024), "f32"))
    kind, row = tensor_type((4096, 1024), "f32"), tensor_type((4096,), "f32")
    raised = g.elementwise(x, of=kind, name="exponential")
    total = g.reduce(raised, kind, row)
    spread = g.move(total, row, kind, "broadcast_in_dim")
    [node] = fuse_as_xla(g.finish(g.elementwise(raised, spread, of=kind, name="divide")))
    assert (node.op, node.work.read, node.work.written) == ("softmax", kind.bytes, kind.bytes)


def test_a_reduction_of_rows_whose_result_others_read_is_written():
    """The RMS norm's mean square, which the backward pass reads without the rows."""
    g = Graph()
    kind, row = tensor_type((4096, 1024), "f32"), tensor_type((4096,), "f32")
    x = g.input(kind)
    square = g.reduce(g.elementwise(x, of=kind, name="multiply"), kind, row)
    spread = g.move(square, row, kind, "broadcast_in_dim")
    scaled = g.elementwise(x, spread, of=kind, name="scaled")
    graph = g.finish(scaled, g.elementwise(square, of=row, name="cube"))
    assert as_xla(graph) == [("reduce", 2), ("scaled", 2), ("cube", 1)]


def test_a_reduction_of_columns_that_are_read_again_is_a_separate_kernel() -> None:
    g = Graph()
    kind, column = tensor_type((4096, 1024), "f32"), tensor_type((1024,), "f32")
    x = g.input(kind)
    total = g.reduce(x, kind, column)
    spread = g.move(total, column, kind, "broadcast_in_dim")
    graph = g.finish(g.elementwise(x, spread, of=kind, name="divide"))
    assert as_xla(graph) == [("reduce", 1), ("divide", 2)]


def test_a_diamond_is_one_kernel() -> None:
    g = Graph()
    top = g.elementwise(g.input())
    graph = g.finish(g.elementwise(g.elementwise(top), g.elementwise(top), name="bottom"))
    assert kernels(graph) == [("bottom", 4)]


def test_an_output_is_written() -> None:
    g = Graph()
    first = g.elementwise(g.input(), name="first")
    assert kernels(g.finish(first, g.elementwise(first))) == [("first", 1), ("add", 1)]


def test_a_reduction_takes_in_producers_and_is_a_root() -> None:
    g = Graph()
    total = g.reduce(g.elementwise(g.input()))
    graph = g.finish(g.elementwise(total, total, of=SCALAR, name="after"))
    assert kernels(graph) == [("reduce", 2), ("after", 1)]


def test_bias_and_activation_join_the_product() -> None:
    g = Graph()
    x, w, bias = g.input(), g.input(WEIGHT), g.input(tensor_type((32,), "f32"))
    spread = g.move(bias, tensor_type((32,), "f32"), ACTIVATION, "broadcast_in_dim")
    node = only(g.finish(g.elementwise(g.elementwise(g.dot(x, w), spread), name="tanh")))
    assert (node.op, node.role, node.ops_merged) == ("dot_general", Role.CONTRACTION, 4)
    assert node.work.read == ACTIVATION.bytes + WEIGHT.bytes + 32 * 4
    assert node.work.written == ACTIVATION.bytes
    assert [item.unit for item in node.work.items] == [Unit.MATMUL, Unit.VECTOR]


def test_a_kernel_has_one_product() -> None:
    g = Graph()
    x, w = g.input(), g.input(WEIGHT)
    graph = g.finish(g.elementwise(g.dot(x, w), g.dot(x, w)))
    assert sorted(kernels(graph)) == [("dot_general", 1), ("dot_general", 2)]


def test_an_epilogue_has_as_many_elements_as_the_product() -> None:
    g = Graph()
    product = g.dot(g.input(), g.input(WEIGHT))
    graph = g.finish(g.move(product, SHARD, SHARD, "slice"))
    assert kernels(graph) == [("dot_general", 1), ("slice", 1)]


def test_a_reduction_is_not_an_epilogue() -> None:
    g = Graph()
    graph = g.finish(g.reduce(g.elementwise(g.dot(g.input(), g.input(WEIGHT)))))
    assert kernels(graph) == [("dot_general", 1), ("reduce", 2)]


def test_a_product_loads_through_conversions_and_transposes_but_not_arithmetic() -> None:
    g = Graph()
    work = Work((WorkItem(Unit.VECTOR, "bf16", 2048),), HALF.bytes, ACTIVATION.bytes)
    loaded = g.op("convert", Role.ELEMENTWISE, (g.input(HALF),), work=work)
    turned = g.move(g.input(WEIGHT), WEIGHT, WEIGHT)
    node = only(g.finish(g.dot(loaded, turned)))
    assert node.ops_merged == 3
    assert node.work.read == HALF.bytes + WEIGHT.bytes

    g = Graph()
    graph = g.finish(g.dot(g.elementwise(g.input()), g.input(WEIGHT)))
    assert kernels(graph) == [("add", 1), ("dot_general", 1)]


def test_an_update_takes_in_what_makes_the_update_but_not_the_buffer() -> None:
    g = Graph()
    buffer = g.elementwise(g.input(), name="buffer")
    new = g.elementwise(g.input(SHARD), of=SHARD)
    fused = fuse_kernels(g.finish(g.update(buffer, new, g.input(INDEX))))
    made, update = fused
    assert (made.op, update.op, update.ops_merged) == ("buffer", "dynamic_update_slice", 2)
    assert update.work.read == SHARD.bytes + INDEX.bytes
    assert update.work.written == SHARD.bytes
    assert update.work.aliased == ACTIVATION.bytes - SHARD.bytes


@pytest.mark.parametrize("size", [IMMEDIATE_BYTES // 4, IMMEDIATE_BYTES // 4 + 1])
def test_a_constant_is_part_of_the_kernel_and_read_if_it_is_large(size: int) -> None:
    of = tensor_type((size,), "f32")
    g = Graph()
    node = only(g.finish(g.elementwise(g.input(of), g.constant(of), of=of)))
    assert node.operands == (0,)
    assert node.ops_merged == 2
    assert node.work.read == of.bytes * (1 if of.bytes <= IMMEDIATE_BYTES else 2)


def test_a_constant_of_one_value_is_part_of_the_kernel_however_large() -> None:
    g = Graph()
    same = g.constant(ACTIVATION, splat=True)
    node = only(g.finish(g.elementwise(g.input(), same)))
    assert (node.ops_merged, node.work.read) == (2, ACTIVATION.bytes)


def test_a_broadcast_is_made_again_by_every_reader() -> None:
    g = Graph()
    scale = g.input(SCALAR)
    spread = g.move(scale, SCALAR, ACTIVATION, "broadcast_in_dim")
    outputs = [g.elementwise(g.input(), spread), g.elementwise(g.input(), spread)]
    fused = fuse_kernels(g.finish(*outputs))
    assert [node.op for node in fused] == ["add", "add"]
    assert [node.work.read for node in fused] == [ACTIVATION.bytes + SCALAR.bytes] * 2


def test_a_communicated_constant_is_a_node_that_others_look_through() -> None:
    g = Graph()
    constant = g.constant(ACTIVATION)
    graph = g.finish(g.all_reduce(constant), g.elementwise(g.input(), constant))
    fused = fuse_kernels(graph)
    assert [node.op for node in fused] == ["constant", "all_reduce", "add"]
    assert fused[2].inputs == ()


def test_library_calls_stay_alone() -> None:
    g = Graph()
    sort = g.op("sort", Role.OPAQUE, (g.elementwise(g.input()),), work=NO_WORK)
    assert kernels(g.finish(g.elementwise(sort))) == [("add", 1), ("sort", 1), ("add", 1)]


def test_an_order_edge_to_another_kernel_keeps_a_producer_out() -> None:
    g = Graph()
    first = g.elementwise(g.input(), name="first")
    order = ((g.last, EdgeKind.ORDER),)
    other = g.elementwise(g.input(), name="other", order=order)
    graph = g.finish(other, g.elementwise(first, name="last"))
    assert sorted(kernels(graph)) == [("first", 1), ("last", 1), ("other", 1)]


def test_an_order_edge_inside_a_kernel_vanishes() -> None:
    g = Graph()
    first = g.elementwise(g.input())
    order = ((g.last, EdgeKind.ORDER),)
    node = only(g.finish(g.elementwise(first, order=order)))
    assert node.edges == ((-1, 0, 0, EdgeKind.DATA),)


def test_a_slice_is_read_as_far_as_it_goes() -> None:
    g = Graph()
    work = Work((), SHARD.bytes + INDEX.bytes, SHARD.bytes)
    operands = (g.input(), g.input(INDEX))
    taken = g.op("dynamic_slice", Role.MOVEMENT, operands, SHARD, work)
    node = only(g.finish(g.elementwise(taken, of=SHARD)))
    assert node.work.read == SHARD.bytes + INDEX.bytes


def test_a_view_inside_a_kernel_passes_its_bytes_on() -> None:
    g = Graph()
    work = Work((), 0, 0, ACTIVATION.bytes)
    view = g.op("transpose", Role.MOVEMENT, (g.input(),), work=work)
    node = only(g.finish(g.elementwise(view)))
    assert (node.work.read, node.work.written) == (ACTIVATION.bytes, ACTIVATION.bytes)
    assert node.work.aliased == 0


def test_bodies_are_fused() -> None:
    tables = TableBuilder()
    inner = Graph(tables)
    body = inner.finish(inner.elementwise(inner.elementwise(inner.input())))
    outer = Graph(tables)
    (result,) = outer.builder.loop(Loop(body, 1, 3), (outer.input(),))
    fused = fuse_kernels(outer.finish(result))
    assert [node.ops_merged for node in fused.loops[0].body] == [2]
