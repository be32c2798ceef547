"""Products with vectors at granularity xla: kernels and bytes as XLA compiles them for an H100
(jaxlib 0.10.2)."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import flint
from flint.graph.work import Role, Unit
from flint.passes import apply
from tests.passes.xla.kernels.programs import F32, of


def kernels(expression, left, right):
    step = flint.capture(mesh=(1,))(lambda a, b: jnp.einsum(expression, a, b))
    graph = apply(step.capture(of(*left), of(*right)).graph, "xla")
    return [(node.op, node.work.read, node.work.written) for node in graph if node.work.read]


@pytest.mark.parametrize(
    ("expression", "left", "right", "read", "written"),
    [
        ("bmk,bk->bm", (32, 50, 70), (32, 70), 228480, 3200),
        ("bmk,bk->bm", (1, 4000, 2000), (1, 2000), 16004000, 8000),
        ("bk,bk->b", (4096, 4096), (4096, 4096), 67108864, 8192),
    ],
)
def test_a_small_matrix_times_a_vector_is_a_sum(expression, left, right, read, written) -> None:
    """XLA's ``input_reduce_fusion``; of two vectors there is no size that is too large."""
    assert kernels(expression, left, right) == [("reduce", read, written)]


def test_a_large_one_is_a_product() -> None:
    """XLA's ``gemm_fusion_dot`` in four parts, and ``loop_reduce_fusion``: 8,001 * 4,000 is more
    than ten million."""
    found = kernels("bmk,bk->bm", (1, 8000, 4000), (1, 4000))
    assert found == [("dot_general", 64008000, 128000), ("reduce", 128000, 16000)]


def test_what_contracts_nothing_is_elementwise() -> None:
    """XLA's ``loop_multiply_fusion``."""
    found = kernels("bm,bn->bmn", (8, 512), (8, 256))
    assert found == [("multiply", 12288, 2097152)]


def test_the_matrix_may_be_contracted_along_any_dim_and_its_work_is_counted_once() -> None:
    """A square matrix's first dim, by 2 * 64 * 64 FLOPs that no matrix unit computes."""
    step = flint.capture(mesh=(1,))(lambda a, b: jnp.einsum("km,k->m", a, b))
    [node] = apply(step.capture(of(64, 64, dtype=F32), of(64, dtype=F32)).graph, "xla")
    assert node.role == Role.REDUCTION
    assert [(item.unit, item.flops) for item in node.work.items] == [(Unit.VECTOR, 2 * 64 * 64)]
