"""Products that share an operand become one, as XLA's GPU compiler merges them."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from jax import lax

import flint
from flint.graph.graph import Node
from flint.passes import apply
from tests.passes.xla.kernels.programs import of

X, W = of(4096, 512), of(512, 512)
MIB = 1 << 20


def kernels(function, *arguments) -> list[Node]:
    graph = flint.capture(mesh=(1,))(function).capture(*arguments).graph
    return list(apply(graph, "xla"))


def traffic(nodes: list[Node]) -> list[tuple[float, float]]:
    return [(node.work.read / MIB, node.work.written / MIB) for node in nodes]


def test_queries_keys_and_values_are_one_product_that_kernels_cut() -> None:
    """As in XLA's Llama block: ``gemm_fusion_dot`` reads x and three matrices and writes
    [4096, 1536], of which other kernels write the parts (jaxlib 0.10.2, H100)."""
    product, *parts = kernels(lambda x, q, k, v: (x @ q, x @ k, x @ v), X, W, W, W)
    assert product.work.flops == 3 * 2 * 4096 * 512 * 512
    assert traffic([product]) == [(4 + 3 * 0.5, 12)]
    assert traffic(parts) == [(4, 4)] * 3


def test_gradients_of_several_matrices_are_one_product() -> None:
    """x^T dq and x^T dk: the shared operand is on the left of both, after a transpose."""
    product, *parts = kernels(lambda x, q, k: (x.T @ q, x.T @ k), X, of(4096, 4096), of(4096, 4096))
    assert traffic([product]) == [(4 + 2 * 32, 8)]
    assert traffic(parts) == [(4, 4)] * 2


def test_gradients_of_square_matrices_contract_all_tokens() -> None:
    """[1, 512, 512] without its first two dims: the contracted ones are tokens, not the width."""
    x = of(1, 512, 512)
    product, *parts = kernels(
        lambda x, q, k: (jnp.einsum("bth,btq->hq", x, q), jnp.einsum("bth,btk->hk", x, k)), x, x, x
    )
    assert product.work.flops == 2 * 2 * 512**3
    assert len(parts) == 2


@pytest.mark.parametrize(("other", "products"), [("tk,tn->kn", 2), ("kt,tn->kn", 1)])
def test_products_of_a_square_matrix_are_merged_if_they_contract_the_same_dim(
    other: str, products: int
) -> None:
    """x [t, t] by [t, 256] over its last dim, and over the first or the last one."""
    square, wide = of(512, 512), of(512, 256)
    found = kernels(lambda x, a, b: (x @ a, jnp.einsum(other, x, b)), square, wide, wide)
    assert sum(node.op == "dot_general" for node in found) == products


def test_an_operand_on_either_side_is_shared() -> None:
    product, *parts = kernels(lambda x, a, b: (a @ x, x.T @ b), X, of(4096, 4096), of(4096, 4096))
    assert traffic([product]) == [(4 + 2 * 32, 8)]
    assert sorted(part.op for part in parts) == ["slice", "transpose"]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        # One depends on the other.
        (lambda x, a, b: (x @ a, x @ (b @ (x @ a)[:512])), (X, W, W)),
        # Types that differ.
        (lambda x, a, b: (x @ a, jnp.dot(x, b, preferred_element_type=jnp.float32)), (X, W, W)),
        # Both have more than 64 MiB of operands and result.
        (lambda x, a, b: (x @ a, x @ b), (of(4096, 4096), of(4096, 8192), of(4096, 8192))),
        # The same matrix, contracted over its first and over its last dim; over 512 rows or columns
        # that no size tells apart, as attention does with the gradient of its scores.
        (lambda x, a, b: (x @ a, x.T @ b), (X, W, of(4096, 128))),
        (
            lambda x, a, b: (jnp.einsum("hqk,hkd->hqd", x, a), jnp.einsum("hqk,hqd->hkd", x, b)),
            (of(8, 512, 512), of(8, 512, 64), of(8, 512, 64)),
        ),
    ],
    ids=["dependent", "other types", "large", "other dims", "square"],
)  # fmt: skip
def test_products_that_stay_apart(function, arguments) -> None:
    products = [node for node in kernels(function, *arguments) if node.op == "dot_general"]
    assert len(products) >= 2


def test_a_small_product_joins_a_large_one() -> None:
    """One of the two is small: 16 + 0.5 + 1 MiB."""
    product, *parts = kernels(
        lambda x, a, b: (x @ a, x @ b), of(4096, 2048), of(2048, 8192), of(2048, 128)
    )
    assert traffic([product]) == [(16 + 32 + 0.5, 65)]
    assert traffic(parts) == [(64, 64), (1, 1)]


def test_matrices_that_no_tile_fits_are_written_side_by_side() -> None:
    """A router's eight columns beside 512 others, as in XLA's mixture of experts."""
    joined, product, *parts = kernels(lambda x, a, b: (x @ a, x @ b), X, W, of(512, 8))
    assert joined.work.read == joined.work.written == 512 * 520 * 2
    assert product.work.read == (4096 + 520) * 512 * 2
    assert len(parts) == 2


def test_a_kernel_reads_its_part_of_the_parts_of_a_split_product() -> None:
    """Products of two matrices of 512 columns, summed over 4,096 tokens, merged to 1,024 columns
    and split into 4 parts in f32: each addition reads 512 columns of every part."""
    product, *parts = kernels(lambda x, q, k: (x.T @ q, x.T @ k), X, X, X)
    assert traffic([product]) == [(12, 4 * 2)]
    assert traffic(parts) == [(4, 0.5)] * 2


def test_a_value_that_updates_a_stack_is_computed_once_for_each_of_its_elements() -> None:
    """Not once for each element of the stack: three kernels compute the tanh of 64 KiB."""

    def step(carry, x):
        y = jnp.tanh(x)
        return carry + y, (y, y * x)

    graph = (
        flint.capture(mesh=(1,))(lambda x, c: lax.scan(step, c, x))
        .capture(of(64, 32, 1024), of(32, 1024))
        .graph
    )
    body = [block for block, times in apply(graph, "xla").walk() if times == 64]
    [names] = [[node.op for node in block if node.work.written > 1000] for block in body]
    assert sorted(names) == ["add", "dynamic_update_slice", "dynamic_update_slice"]
