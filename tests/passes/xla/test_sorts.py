"""Bytes of sorts and selections as XLA makes them for an H100 (jaxlib 0.10.2): its ``fusion`` of a
sort, ``__gpu$TopK``."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from jax import lax

from tests.passes.xla.kernels.programs import F32, of
from tests.passes.xla.test_simplify import kernels

X = of(64, 1024, dtype=F32)
WHOLE = 64 * 1024 * 4

CASES = {
    "places that keep the order are written, too": (lambda x: jnp.sort(x, -1), 2 * WHOLE),
    "places that are wanted are not read": (lambda x: jnp.argsort(x, -1), 3 * WHOLE),
    "the two largest of 1,024": (lambda x: lax.top_k(x, 2), 64 * 2 * 8),
}


@pytest.mark.parametrize("name", CASES)
def test_of_rows_of_1024(name: str) -> None:
    function, written = CASES[name]
    assert kernels(function, X) == [(WHOLE, written)]


def test_more_than_sixteen_of_a_row_are_found_by_a_sort() -> None:
    """Of which XLA's two ``wrapped_slice`` cut the results, which are cut here for nothing."""
    assert kernels(lambda x: lax.top_k(x, 32), X) == [(WHOLE, 2 * WHOLE)]
