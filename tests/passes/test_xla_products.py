"""What granularity xla fuses into products, rule by rule."""

from __future__ import annotations

from flint.graph.graph import WorkloadGraph
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.passes.fuse import fuse_as_xla, fuse_kernels
from tests.passes.building import ACTIVATION, SCALAR, WEIGHT, Graph


def as_xla(graph: WorkloadGraph) -> list[tuple[str, int]]:
    return [(node.op, node.ops_merged) for node in fuse_as_xla(graph)]


def kernels(graph: WorkloadGraph) -> list[tuple[str, int]]:
    return [(node.op, node.ops_merged) for node in fuse_kernels(graph)]


def test_a_batched_product_of_xla_leaves_transposes_outside_and_has_no_epilogue():
    g = Graph()
    kind = tensor_type((8, 64, 64), "bf16")
    item = WorkItem(Unit.MATMUL, "bf16", 2 * 8 * 64**3, (8, 64, 64, 64))
    work = Work((item,), 2 * kind.bytes, kind.bytes)
    turned = g.move(g.input(kind), kind, kind)
    made = g.op("dot_general", Role.CONTRACTION, (turned, g.input(kind)), kind, work)
    graph = g.finish(g.elementwise(made, of=kind, name="tanh"))
    assert kernels(graph) == [("dot_general", 3)]
    assert as_xla(graph) == [("transpose", 1), ("dot_general", 1), ("tanh", 1)]


def test_the_epilogue_of_a_product_of_xla_adds_but_does_not_multiply_another_tensor():
    for name, expected in (
        ("add", [("dot_general", 2)]),
        ("multiply", [("dot_general", 1), ("multiply", 1)]),
    ):
        g = Graph()
        made = g.dot(g.input(), g.input(WEIGHT))
        assert as_xla(g.finish(g.elementwise(made, g.input(), name=name))) == expected


def test_the_epilogue_of_a_convolution_of_xla_has_nothing_that_cudnn_lacks() -> None:
    """The U-Net's last convolution is written before it is multiplied, by a scalar too."""
    for name, expected in (
        ("maximum", [("convolution", 2)]),
        ("multiply", [("convolution", 1), ("multiply", 1)]),
    ):
        g = Graph()
        item = WorkItem(Unit.MATMUL, "bf16", 2 * 64 * 32 * 16, (1, 64, 32, 16))
        work = Work((item,), ACTIVATION.bytes + WEIGHT.bytes, ACTIVATION.bytes)
        made = g.op("convolution", Role.CONTRACTION, (g.input(), g.input(WEIGHT)), work=work)
        assert as_xla(g.finish(g.elementwise(made, g.input(SCALAR), name=name))) == expected
