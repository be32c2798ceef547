"""What products write: their result in the type that it is converted to at once."""

from __future__ import annotations

from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.passes.fuse import fuse_kernels
from tests.passes.building import ACTIVATION, WEIGHT, Graph, names

WIDE, NARROW = tensor_type((64, 16), "f32"), tensor_type((64, 16), "bf16")


def product(graph, left):
    weight = graph.input(WEIGHT)
    work = Work((WorkItem(Unit.MATMUL, "f32", 2 * 64 * 32 * 16, (1, 64, 16, 32)),), 10240, 4096)
    return graph.op("dot_general", Role.CONTRACTION, (left, weight), WIDE, work)


def convert(graph, value, source, target):
    work = Work((), source.bytes, target.bytes)
    return graph.op("convert", Role.ELEMENTWISE, (value,), target, work)


def test_a_sum_of_two_products_in_bf16_reads_one_as_bf16():
    """As PyTorch's mm returns it: the second ends in the sum, the first is written with 2 bytes."""
    graph = Graph()
    left = graph.input(ACTIVATION)
    wide = [
        convert(graph, convert(graph, product(graph, left), WIDE, NARROW), NARROW, WIDE)
        for _ in range(2)
    ]
    total = convert(graph, graph.elementwise(*wide, of=WIDE), WIDE, NARROW)
    kernels = fuse_kernels(graph.finish(total))
    assert names(kernels) == ["dot_general", "dot_general"]
    assert kernels.bytes_written.tolist() == [NARROW.bytes, NARROW.bytes]
    assert kernels.bytes_read[1] == ACTIVATION.bytes + WEIGHT.bytes + NARROW.bytes


def test_a_conversion_to_a_wider_type_stays_with_its_reader():
    graph = Graph()
    left = graph.input(ACTIVATION)
    wider = tensor_type((64, 16), "f64")
    wide = [convert(graph, product(graph, left), WIDE, wider) for _ in range(2)]
    kernels = fuse_kernels(graph.finish(graph.elementwise(*wide, of=wider)))
    assert kernels.bytes_written.tolist() == [WIDE.bytes, wider.bytes]
