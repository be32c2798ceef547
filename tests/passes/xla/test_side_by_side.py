"""Concatenations in front of products at granularity xla: kernels and bytes as XLA makes them for
an H100 (jaxlib 0.10.2)."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from tests.passes.xla.kernels.programs import of
from tests.passes.xla.test_simplify import kernels

ROWS, WIDTH = 4096, 2048
X = of(ROWS, WIDTH)
WHOLE, SQUARE = ROWS * WIDTH * 2, WIDTH * WIDTH * 2
#: A sum and a product of two values, each by a kernel that only it is.
PARTS = [(2 * WHOLE, WHOLE)] * 2


def beside(a, b):
    return jnp.concatenate([a * b, a + b], -1)


def test_a_product_loads_parts_along_a_dim_that_it_keeps() -> None:
    """XLA's ``wrapped_add``, ``wrapped_multiply`` and ``gemm_fusion_dot_general``."""
    found = kernels(lambda a, b: a.T @ beside(a, b), X, X)
    assert found == [*PARTS, (3 * WHOLE, 2 * SQUARE)]
    half = of(8, 512, 512)
    found = kernels(lambda a, b: jnp.einsum("bij,bjk->bik", a, beside(a, b)), half, half)
    size = 8 * 512 * 512 * 2
    assert found == [*[(2 * size, size)] * 2, (3 * size, 2 * size)]


def test_a_product_that_contracts_the_dim_reads_the_whole() -> None:
    """XLA's ``input_concatenate_fusion``."""
    found = kernels(lambda a, b, w: beside(a, b) @ w, X, X, of(2 * WIDTH, WIDTH))
    assert found == [(2 * WHOLE, 2 * WHOLE), (2 * WHOLE + 2 * SQUARE, WHOLE)]


def test_a_product_that_loads_parts_leaves_the_whole_to_another_one() -> None:
    """XLA's ``wrapped_add``, ``wrapped_multiply``, ``wrapped_concatenate`` and both products, as of
    a gated unit's gradient."""

    def step(a, b, w):
        return a.T @ beside(a, b), beside(a, b) @ w

    found = kernels(step, X, X, of(2 * WIDTH, WIDTH))
    products = [(3 * WHOLE, 2 * SQUARE), (2 * WHOLE + 2 * SQUARE, WHOLE)]
    assert sorted(found) == sorted([*PARTS, (2 * WHOLE, 2 * WHOLE), *products])


@pytest.mark.parametrize(("narrow", "count"), [(96, 1), (512, 5)])
def test_parts_that_no_product_loads_are_written_beside_each_other(narrow, count) -> None:
    """Sizes that are no multiples of 64, and more than four parts."""

    def step(a, b, c):
        return a.T @ jnp.concatenate([b * (n + 2) for n in range(count)] + [c * 2], -1)

    wide = count * narrow * ROWS * 2
    found = kernels(step, X, of(ROWS, narrow), X)
    assert found[0] == (narrow * ROWS * 2 + WHOLE, wide + WHOLE) and len(found) == 2


def test_a_split_sum_over_several_dims_has_a_whole_of_its_own() -> None:
    """XLA's ``wrapped_concatenate`` and ``__cublas$lt$matmul``, whose parts a kernel adds up."""
    half = of(8, 512, 512)
    found = kernels(lambda a, b: jnp.einsum("bti,btj->ij", a, beside(a, b)), half, half)
    size, square = 8 * 512 * 512 * 2, 512 * 1024 * 2
    products = [(3 * size, 8 * square), (8 * square, square)]
    assert found == [*[(2 * size, size)] * 2, (2 * size, 2 * size), *products]


def test_parts_along_one_of_two_dims_that_a_product_keeps_are_written() -> None:
    """XLA's ``input_concatenate_fusion`` and ``gemm_fusion_dot`` of merged tokens: 12,288 rows are
    16 images of 256 and 512 tokens."""
    parts = of(16, 256, 768), of(16, 512, 768), of(768, 768)
    whole, matrix = 16 * 768 * 768 * 2, 768 * 768 * 2
    found = kernels(lambda a, b, w: jnp.concatenate([a, b], 1) @ w, *parts)
    assert found == [(whole, whole), (whole + matrix, whole)]
