"""Integers of a kernel, against the primitives that compute them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from flint.frontends.jax.kernels.integers import value_of
from flint.frontends.jax.kernels.points import whole

NUMBERS = st.lists(st.integers(-50, 50), min_size=6, max_size=6)
PRIMITIVES = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem,
    "max": lax.max, "min": lax.min, "eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le,
    "gt": lax.gt, "ge": lax.ge, "and": lax.bitwise_and, "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize("name", PRIMITIVES)
@given(NUMBERS, NUMBERS)
def test_numpy_does_what_the_primitive_does(name, first, second):
    second = [item or 1 for item in second]  # the result of a division by 0 is undefined
    left, right = np.array(first), np.array(second)
    expected = PRIMITIVES[name](jnp.array(first), jnp.array(second))
    assert np.array_equal(value_of(name, {}, [left, right]), expected)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(-3, 3), st.integers(-2, 2))
def test_a_loop_within_a_loop_runs_as_often_as_in_python(rows, columns, base, slope):
    grid = whole((rows, columns))
    outer, index = grid.looped(base + slope * grid.along(0))
    inner, _ = outer.looped(index + grid.along(1))
    runs = sum(
        max(0, i + column)
        for row in range(rows)
        for column in range(columns)
        for i in range(max(0, base + slope * row))
    )
    assert inner.total() == runs
