"""Layouts that travel, at granularity xla: kernels and bytes as XLA compiles them for an H100
(jaxlib 0.10.2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import flint
from flint.passes import apply
from flint.passes.xla.orders import writes
from tests.passes.xla.kernels.programs import F32, of
from tests.passes.xla.kernels.record import captured

#: Scores of the capped attention in bf16 and f32, and a number for each row of them in f32.
SCORES, WIDE, ROWS = (2 * 4 * 4 * 1024 * 1024 * size for size in (2, 4, 4 / 1024))


def moved(graph) -> list[tuple[int, int]]:
    return [(node.work.read, node.work.written) for node in graph]


def test_softmax_of_grouped_queries_sums_up_a_dim_in_the_middle() -> None:
    """XLA's ``input_reduce_tanh_fusion``, ``input_reduce_fusion`` and ``loop_transpose_fusion`` of
    the forward pass; then the gradient, transposed, and the sum of it and exponentials."""
    found = moved(apply(captured("capped attention").graph, "xla"))
    made = [
        (SCORES, WIDE + ROWS), (WIDE + ROWS, ROWS), (WIDE + 2 * ROWS, SCORES), (SCORES, WIDE),
        (2 * WIDE + 2 * ROWS, ROWS),
    ]  # fmt: skip
    for read, written in made:
        assert any(0 <= r - read < 100 and w == written for r, w in found), (read, written)


def test_a_transpose_that_undoes_it_goes() -> None:
    """Scores [2, k, q, g], normalised over g of [2, g, q, k] and turned back: 2 x 512 x 512 x 4
    elements of f32 are read and written by kernels that sum up the last dim in memory, and nothing
    transposes."""

    def rows(a, b):
        scores = jnp.einsum("bkd,bqgd->bkqg", a, b).transpose(0, 3, 2, 1)
        return jax.nn.softmax(scores, 1).transpose(0, 3, 2, 1)

    step = flint.capture(mesh=(1,))(rows)
    graph = apply(
        step.capture(of(2, 512, 64, dtype=F32), of(2, 512, 4, 64, dtype=F32)).graph, "xla"
    )
    assert "transpose" not in {node.op for node in graph}
    assert {node.result_types[0].shape for node in graph} <= {(2, 512, 512, 4), (2, 512, 512)}


def test_sums_of_products_with_vectors_read_votes_as_their_product_writes_them() -> None:
    """XLA's ``input_reduce_fusion`` of the capsules, nine that read votes [512, 16, 32, 32] of
    bf16, which it never transposes."""
    votes = 512 * 16 * 32 * 32 * 2
    graph = apply(captured("capsules").graph, "xla")
    assert (votes, votes) not in moved(graph)
    sums = [node.work.read for node in graph if node.op == "reduce"]
    assert sum(read >= votes for read in sums) == 9


@pytest.mark.parametrize(
    ("order", "written"),
    [
        ((0, 1, 2, 3, 4), True),
        ((0, 1, 3, 4, 2), True),  # columns in front of rows
        ((2, 0, 1, 3, 4), True),  # rows in front of the batch
        ((0, 1, 4, 3, 2), False),  # columns the other way round
        ((2, 3, 4, 0, 1), False),  # the batch last
        ((0, 2, 1, 3, 4), False),  # rows within the batch
    ],
)
def test_orders_that_a_product_writes(order, written) -> None:
    """``MatrixLayout::For``, of a result with two dims of a batch, one of rows, two of columns."""
    assert writes([0, 0, 1, 2, 2], order, (2, 4, 8, 8, 4)) == written


def test_dims_of_size_one_may_be_anywhere() -> None:
    """A row of size 1 in front of the batch, as a group of one query leaves it."""
    assert writes([1, 0, 0, 1, 2], (0, 1, 2, 3, 4), (1, 4, 16, 512, 512))
    assert not writes([1, 0, 0, 1, 2], (0, 1, 2, 3, 4), (2, 4, 16, 512, 512))
