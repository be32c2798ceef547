"""What products want of their operands, at granularity xla: kernels and bytes as XLA compiles them
for an H100 (jaxlib 0.10.2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import flint
from flint.passes import apply
from tests.passes.xla.kernels.programs import F32, of
from tests.passes.xla.kernels.record import captured

#: Bytes of bf16[4, 768, 8, 64].
WHOLE = 4 * 768 * 8 * 64 * 2


def kernels(function, *arguments):
    """Op, bytes read and written, and the shape of the first result."""
    graph = apply(flint.capture(mesh=(1,))(function).capture(*arguments).graph, "xla")
    return [
        (node.op, node.work.read, node.work.written, node.result_types[0].shape) for node in graph
    ]


def test_a_parameter_is_transposed_for_a_product_that_sums_over_a_dim_between_its_heads() -> None:
    """XLA's wrapped_transpose of bf16[4,768,8,64] to [4,8,768,64]; what a GELU makes is written as
    [4,8,64,768], and so it is summed up: input_reduce_fusion, 3,145,728 and 8,192 bytes."""

    def step(x, v):
        a = jax.nn.gelu(x)
        return jnp.einsum("bkhd,bkhe->bhde", a, v), a.astype(F32).sum(1)

    found = kernels(step, of(4, 768, 8, 64), of(4, 768, 8, 64))
    assert ("transpose", WHOLE, WHOLE, (4, 8, 768, 64)) in found
    assert ("multiply", WHOLE, WHOLE, (4, 8, 64, 768)) in found
    assert ("reduce", WHOLE, 4 * 8 * 64 * 4, (4, 8, 64)) in found
    assert sum(read for op, read, *_ in found if op == "dot_general") == 2 * WHOLE


def test_operands_whose_heads_are_in_front_stay() -> None:
    """Rows and columns may be either way round: XLA has no kernel but the products."""

    def step(q, k, v):
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k)
        return jnp.einsum("bhqk,bhkd->bhqd", scores, v)

    found = kernels(step, *[of(2, 8, 256, 64)] * 3)
    assert [op for op, *_ in found] == ["dot_general", "dot_general"]


def test_heads_that_are_cut_out_are_transposed_once_for_all_products() -> None:
    """XLA's two ``input_transpose_fusion`` of a product [4096, 2304], which three products read."""

    def step(x, w):
        y = (x @ w).reshape(16, 256, 3, 12, 64)
        q, k = y[:, :, 0], y[:, :, 1]
        scores = jnp.einsum("bihd,bjhd->bhij", q, k)
        other = jnp.einsum("bhij,bihd->bhjd", scores, q)
        return other, jnp.einsum("bhij,bjhd->bhid", scores, k)

    found = kernels(step, of(16, 256, 768), of(768, 2304))
    part = 16 * 256 * 768 * 2
    names = ["dot_general", "transpose", "transpose", *["dot_general"] * 3]
    assert [op for op, *_ in found] == names
    assert [(read, written) for op, read, written, _ in found if op == "transpose"] == [
        (part, part)
    ] * 2


def test_a_product_with_a_vector_reads_anything() -> None:
    """One query a head on keys [32, 2048, 8, 128]: sums, as in the decoded token."""
    found = kernels(
        lambda q, k: jnp.einsum("bhd,bkhd->bhk", q, k), of(32, 8, 128), of(32, 2048, 8, 128)
    )
    assert "transpose" not in {op for op, *_ in found}


def test_heads_of_projections_are_brought_in_front() -> None:
    """XLA: two projections, a transpose of each to [4, 6, 768, 64] and [4, 6, 64, 256], and the
    scores of 24 heads, which read what the transposes wrote."""

    def step(x, y, q, k):
        a, b = (x @ q).reshape(4, 768, 6, 64), (y @ k).reshape(4, 256, 6, 64)
        return jnp.einsum("bqhd,bkhd->bhqk", a, b)

    found = kernels(step, of(4, 768, 384), of(4, 256, 384), *[of(384, 384)] * 2)
    queries, keys = 4 * 768 * 384 * 2, 4 * 256 * 384 * 2
    assert sorted((read, written) for op, read, written, _ in found if op != "dot_general") == [
        (keys, keys), (queries, queries),
    ]  # fmt: skip
    assert (queries + keys, 4 * 6 * 768 * 256 * 2) in {
        (read, written) for op, read, written, _ in found if op == "dot_general"
    }


def test_an_activation_of_transposed_heads_is_three_kernels_that_transpose() -> None:
    """XLA's ``input_transpose_fusion`` of the linear attention, for queries and for keys
    [4, 768, 8, 48] of bf16: where they are positive, exponentials, and what both choose.  A kernel
    that had the transpose twice would not transpose in tiles."""
    whole = 4 * 768 * 8 * 48 * 2
    graph = apply(captured("linear attention").graph, "xla")
    found = [(node.work.read, node.work.written) for node in graph]
    positive, exponentials, chosen = (
        (whole, whole // 2), (whole * 3 // 2, whole), (whole * 5 // 2, whole)
    )  # fmt: skip
    assert [found.count(each) for each in (positive, exponentials, chosen)] == [2, 2, 2]


def test_a_cache_is_updated_in_the_order_in_which_a_product_reads_it() -> None:
    """XLA's wrapped_transpose of the keys bf16[4,1024,8,64], a copy of it that is updated, and
    input_transpose_fusion of the updated keys, which leave the program: 4,194,304 bytes each."""

    def step(keys, x, w):
        y = (x @ w).reshape(4, 8, 16, 64)
        keys = jax.lax.dynamic_update_slice_in_dim(keys, y[:, :, 8:], 1016, 1)
        return jnp.einsum("bigd,bjgd->bgij", y[:, :, :8], keys), keys

    found = kernels(step, of(4, 1024, 8, 64), of(32, 512), of(512, 1024))
    whole = 4 * 1024 * 8 * 64 * 2
    moved = [(op, shape) for op, read, written, shape in found if read == written == whole]
    turned = (4, 8, 64, 1024)
    back = (4, 1024, 8, 64)
    assert moved == [("transpose", turned), ("copy", turned), ("transpose", back)]
    read = [read for op, read, _, shape in found if op == "dot_general" and len(shape) == 4]
    assert read == [whole + 4 * 8 * 8 * 64 * 2]
