"""What granularity xla computes from constants, as XLA does for an H100 (jaxlib 0.10.2)."""

from __future__ import annotations

import jax.numpy as jnp

from flint.passes import apply
from tests.passes.xla.kernels.programs import of
from tests.passes.xla.kernels.record import captured
from tests.passes.xla.test_simplify import kernels


def test_a_mask_with_replaced_elements_is_a_constant() -> None:
    """XLA's ``loop_multiply_fusion`` reads a constant of 1,025 numbers."""
    x = of(64, 1025, dtype=jnp.float32)
    size, mask = 64 * 1025 * 4, 1025 * 4

    def masked(x):
        return x * jnp.full(1025, 2.0, x.dtype).at[0].set(1.0).at[1024].set(1.0)

    assert kernels(masked, x) == [(size + mask, size)]


def test_frequencies_of_a_gradient_are_weighted_by_a_constant() -> None:
    """XLA writes no such weights in the program with filters as long as the sequence."""
    graph = apply(captured("filters as long as the sequence").graph, "xla")
    assert not any(node.op == "dynamic_update_slice" for node in graph)
