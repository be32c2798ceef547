"""Stacks that a loop would fill twice, as XLA fills them once (jaxlib 0.10.2, H100)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

import flint
from flint.passes import apply
from tests.passes.xla.kernels.programs import F32, of


def kernels(step) -> list[tuple[int, int, int]]:
    """Kernels of a scan's gradient: how often, bytes read and written, in order."""

    def run(x):
        _, ys = lax.scan(step, jnp.zeros_like(x[0]), x)
        return (ys * ys).sum()

    captured = flint.capture(mesh=(1,))(jax.grad(run)).capture(of(16, 64, dtype=F32))
    graph = apply(captured.graph, "xla")
    return sorted(
        (times, int(node.work.read), int(node.work.written))
        for block, times in graph.walk()
        for node in block
        if node.work.read or node.work.written
    )


#: Copies of two counters' zeros, two states that begin with zeros; a state's, its gradient's and
#: two counters' steps; a row of the inputs' gradients.
BOTH = [(1, 0, 512), (1, 4, 4), (1, 4, 4), (16, 4, 4), (16, 4, 4), (16, 516, 256), (16, 772, 256)]


def test_a_state_that_is_returned_and_kept_is_stacked_once() -> None:
    """The state before each step is a result and a factor of its gradient: a stack of 4,096 bytes
    beside that of the inputs' gradients, two rows of 256 bytes. XLA's ``wrapped_add`` reads the
    stack once, ours twice."""
    found = kernels(lambda s, x: (s * s + x, s))
    assert [each for each in found if each[1] != 8192] == sorted(
        [*BOTH, (1, 0, 2 * 4096), (16, 260, 256), (16, 260, 256)]
    )


def test_stacks_of_other_values_stay() -> None:
    """The state behind each step is the result, so that there are three stacks."""
    found = kernels(lambda s, x: (s * s + x, s * s + x))
    assert [each for each in found if each[1] != 8192] == sorted(
        [*BOTH, (1, 0, 3 * 4096), (16, 260, 256), (16, 260, 256), (16, 516, 256)]
    )
