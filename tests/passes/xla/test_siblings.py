"""Readers of one value that granularity xla joins, as XLA does for an H100 (jaxlib 0.10.2)."""

from __future__ import annotations

from tests.passes.xla.kernels.programs import of
from tests.passes.xla.test_simplify import kernels

X, WHOLE = of(4096, 2048), 4096 * 2048 * 2


def test_two_kernels_that_are_one_op_each_are_not_joined() -> None:
    """XLA's ``wrapped_add`` and ``wrapped_multiply``."""
    assert kernels(lambda x, y: (x * y, x + y), X, X) == [(2 * WHOLE, WHOLE)] * 2


def test_a_kernel_of_several_ops_takes_in_one_op() -> None:
    """XLA's ``loop_add_multiply_fusion``: a factor is an op."""
    assert kernels(lambda x, y: (x * y, x + y * 2), X, X) == [(2 * WHOLE, 2 * WHOLE)]
