"""Stacks that a loop would fill twice, as XLA fills them once (jaxlib 0.10.2, H100)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import flint
from flint.graph.graph import NodeKind
from flint.passes.xla.repeated_stacks import without_repeated_stacks
from tests.passes.xla.kernels.programs import F32, of


def carried(step) -> list[int]:
    """Carried values of the loops of a gradient."""

    def run(x):
        _, ys = lax.scan(step, jnp.zeros_like(x[0]), x)
        return (ys * ys).sum()

    argument = of(16, 64, dtype=F32)
    graph = flint.capture(mesh=(1,))(jax.grad(run)).capture(argument).graph
    found = without_repeated_stacks(graph)
    return [found.loop_of(node).carried for node in np.flatnonzero(found.kind == NodeKind.LOOP)]


def test_a_state_that_is_returned_and_kept_is_stacked_once() -> None:
    """The state before each step is a result and a factor of its gradient: XLA's first loop of
    this gradient carries the counter, the state and one stack."""
    assert carried(lambda s, x: (s * s + x, s))[0] == 3


def test_stacks_of_other_values_stay() -> None:
    """The state behind each step is the result."""
    assert carried(lambda s, x: (s * s + x, s * s + x))[0] == 4
