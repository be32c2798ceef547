"""Operands whose dims a product brings together, at granularity xla: kernels and bytes as XLA
compiles them for an H100 (jaxlib 0.10.2)."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import flint
from flint.passes import apply
from flint.passes.xla.split_dims import are_contracted
from tests.passes.xla.kernels.programs import of


@pytest.mark.parametrize(
    ("expression", "left", "right", "made"),
    [
        (
            "th,ehf->tef", (1024, 512), (8, 512, 1024),
            [("transpose", 8388608, 8388608), ("dot_general", 9437184, 16777216)],
        ),
        ("th,hef->tef", (1024, 512), (512, 8, 1024), [("dot_general", 9437184, 16777216)]),
        (
            "etf,efh->th", (8, 1024, 512), (8, 512, 256),
            [("dot_general", 10485760, 8388608), ("reduce", 8388608, 524288)],
        ),
    ],
)  # fmt: skip
def test_only_a_dim_that_is_contracted_between_others_is_moved(
    expression, left, right, made
) -> None:
    """XLA: ``wrapped_transpose`` of bf16[8,512,1024] to [512,8,1024] in the first case alone."""
    step = flint.capture(mesh=(1,))(lambda a, b: jnp.einsum(expression, a, b))
    graph = apply(step.capture(of(*left), of(*right)).graph, "xla")
    assert [(node.op, node.work.read, node.work.written) for node in graph] == made


def test_dims_in_front_of_a_reshape_are_not_those_of_the_product() -> None:
    """Heads [8, 512, 8, 64] that a product reads as [8, 512, 512]: its dim 2 is two dims there."""
    assert are_contracted((8, 512, 512), (2,), 512)
    assert not are_contracted((8, 512, 8, 64), (2,), 512)
