"""Values that every reader makes again, counted by hand."""

from __future__ import annotations

import pytest

from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.passes.fuse import fuse_kernels
from flint.passes.made_of_less import made_of_less
from tests.passes.building import Graph

NARROW = tensor_type((64, 1024), "bf16")  # 128 KiB
WIDE = tensor_type((64, 1024), "f32")  # 256 KiB
ROW = tensor_type((64,), "f32")


def unary(g: Graph, operand: int, source: TensorType, name: str, unit: Unit = Unit.VECTOR) -> int:
    """An elementwise op from ``source`` to ``WIDE``."""
    work = Work((WorkItem(unit, "f32", WIDE.elements),), source.bytes, WIDE.bytes)
    return g.op(name, Role.ELEMENTWISE, (operand,), WIDE, work)


def with_two_readers(source: TensorType, unit: Unit = Unit.VECTOR) -> Graph:
    """Two sums of rows of a value that is made of ``source``."""
    g = Graph()
    value = unary(g, g.input(source), source, "convert", unit)
    g.outputs = [g.reduce(value, WIDE, ROW), g.reduce(value, WIDE, ROW)]
    return g


def test_a_conversion_to_a_type_twice_as_wide_is_made_by_each_reader() -> None:
    """Two kernels that read 128 KiB each; written once it would be 128 + 256 + 2 x 256 KiB."""
    g = with_two_readers(NARROW)
    fused = fuse_kernels(g.finish(*g.outputs))
    assert [node.op for node in fused] == ["reduce", "reduce"]
    assert [node.work.read for node in fused] == [NARROW.bytes] * 2
    assert sum(node.ops_merged for node in fused) == 3


@pytest.mark.parametrize(
    ("source", "unit"), [(WIDE, Unit.VECTOR), (NARROW, Unit.TRANSCENDENTAL)], ids=["wide", "exp"]
)
def test_what_is_as_large_or_takes_long_is_written(source: TensorType, unit: Unit) -> None:
    g = with_two_readers(source, unit)
    fused = fuse_kernels(g.finish(*g.outputs))
    assert [node.op for node in fused] == ["convert", "reduce", "reduce"]
    assert [node.work.read for node in fused] == [source.bytes, WIDE.bytes, WIDE.bytes]


def test_a_chain_is_made_of_what_its_first_op_reads() -> None:
    """x - maximum(x) of converted scores: 128 KiB and a row of 256 bytes for 256 KiB."""
    g = Graph()
    wide = unary(g, g.input(NARROW), NARROW, "convert")
    spread = g.move(g.input(ROW), ROW, WIDE, "broadcast_in_dim")
    less = g.elementwise(wide, spread, name="subtract", of=WIDE)
    graph = g.finish(g.reduce(less, WIDE, ROW), g.reduce(less, WIDE, ROW))
    assert [graph.tables.ops[graph.op[node]] for node in made_of_less(graph).nonzero()[0]] == [
        "convert", "subtract"
    ]  # fmt: skip
    assert [node.work.read for node in fuse_kernels(graph)] == [NARROW.bytes + ROW.bytes] * 2
