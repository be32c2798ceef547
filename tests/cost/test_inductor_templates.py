"""Kernels that Inductor has templates for: of the class of the op that the template is for."""

from __future__ import annotations

import pytest

from flint.cost.classes import KERNELS, kernel_classes
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # FlexAttention, and what Inductor fuses into its kernel.
        ("triton_tem_fused_flex_attention_backward_transpose_view_3", "attention"),
        ("triton_tem_fused__to_copy_mm_1", "matmul"),
        # A kernel of loops is none of the ops that it is named after.
        ("triton_per_fused_flex_attention_backward_0", "reduction"),
    ],
)
def test_a_template_is_of_the_class_of_its_op(name, expected):
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    result = tensor_type((128, 128), "bf16")
    unit = Unit.MATMUL if "_tem_" in name else Unit.VECTOR
    work = Work((WorkItem(unit, "bf16", 2 * 128**3),), 4 * 128**2, 2 * 128**2)
    value = builder.input(tables.type(result))
    builder.compute(f"inductor.{name}", Role.OPAQUE, (value,), (result,), work)
    graph = with_tables(builder.finish(()), tables.finish())
    assert [KERNELS[kind] for kind in kernel_classes(graph)] == [expected]
