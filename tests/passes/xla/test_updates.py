"""Updates at granularity xla: kernels and bytes as XLA makes them for an H100 (jaxlib 0.10.2)."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from tests.passes.xla.kernels.programs import F32, I32, of
from tests.passes.xla.test_simplify import kernels

CACHE, NEW = of(64, 256, 1024, dtype=F32), of(64, 1024, dtype=F32)
WHOLE, PART = 64 * 256 * 1024 * 4, 64 * 1024 * 4


def test_a_value_that_is_updated_at_one_place_is_computed_by_what_reads_it() -> None:
    """XLA's ``input_reduce_fusion``: neither a copy nor a scatter."""
    [(read, written)] = kernels(lambda x, u: x.at[:, -1].set(u).sum(1), CACHE, NEW)
    assert 0 <= read - WHOLE - PART <= 4 and written == PART


def test_an_updated_value_that_leaves_is_a_copy_and_an_update() -> None:
    """XLA's ``copy`` and ``loop_dynamic_update_slice_fusion``."""
    found = kernels(lambda x, u: x.at[:, -1].set(u), CACHE, NEW)
    assert [(read // PART, written // PART) for read, written in found] == [(256, 256), (1, 1)]


def test_a_scatter_to_many_places_is_apart_from_what_reads_it() -> None:
    """XLA's ``copy``, ``input_scatter_fusion`` of 8,388,640 and 8,388,608 bytes, and
    ``input_reduce_fusion``."""

    def step(x, i, u):
        return jnp.tanh(x.at[i].set(u)).sum(1)

    found = kernels(step, CACHE, of(8, dtype=I32), of(8, 256, 1024, dtype=F32))
    assert found == [(WHOLE, WHOLE), (8388640, 8388608), (WHOLE, PART)]


def test_an_update_at_a_computed_place_is_one_of_a_slice() -> None:
    """XLA's ``input_reduce_fusion`` of 67,371,012 bytes."""

    def step(x, i, u):
        return lax.dynamic_update_slice(x, u[:, None], (0, i, 0)).sum(1)

    assert kernels(step, CACHE, of(dtype=I32), NEW) == [(WHOLE + PART + 4, PART)]
