"""Windows at granularity xla: kernels and bytes as XLA makes them for an H100 (jaxlib 0.10.2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import flint
from flint.passes import apply
from tests.passes.xla.kernels.programs import F32, mean_square, of
from tests.passes.xla.test_simplify import kernels

X, WHOLE = of(8, 512, 1024, dtype=F32), 8 * 512 * 1024 * 4


def test_a_running_sum_reads_what_it_sums_up_twice() -> None:
    """XLA's ``loop_slice_fusion`` of the last elements of 32 tiles, what sums these up in two
    tiles, and ``loop_add_fusion``, which reads 17.9 and writes 16.8 MB."""
    first, *between, (read, written) = kernels(lambda x: jnp.cumsum(x, 1), X)
    assert first == (WHOLE, WHOLE // 16) and len(between) == 2
    assert 0 < read - WHOLE <= WHOLE // 16 + WHOLE // 256 and written == WHOLE


@pytest.mark.parametrize(
    ("length", "parts"), [(16, []), (64, [(64, 4), (4, 4)])], ids=["no tiles", "four tiles"]
)
def test_short_running_sums_have_few_tiles(length, parts) -> None:
    """XLA's ``loop_reduce_window_fusion``; two ``loop_slice_fusion`` and ``loop_add_fusion``."""
    row = 512 * 256 * 4
    found = kernels(lambda x: jnp.cumsum(x, 1), of(512, length, 256, dtype=F32))
    last = length + parts[-1][1] if parts else length
    assert found == [(a * row, b * row) for a, b in [*parts, (last, length)]]


def test_a_running_sum_in_tiles_has_the_work_of_one() -> None:
    step = flint.capture(mesh=(1,))(lambda x: jnp.cumsum(x, 1))
    graph = step.capture(X).graph
    assert sum(node.work.flops for node in apply(graph, "xla")) == sum(
        node.work.flops for node in graph
    )


def test_what_windows_read_several_times_is_written() -> None:
    """The gradient of an average over windows: XLA's ``loop_multiply_fusion`` of the averages,
    which ``loop_reduce_window_fusion`` spreads."""

    def pooled(x):
        window = (1, 2, 2, 1)
        return mean_square(lax.reduce_window(x, 0.0, lax.add, window, window, "VALID"))

    image = of(16, 64, 64, 64, dtype=F32)
    size = 16 * 64 * 64 * 64 * 4
    assert kernels(jax.grad(pooled), image) == [(size, size // 4), (size // 4, size)]
