"""Weights with a scale for each group of their inputs, at granularity xla: bytes as XLA reads and
writes them for an H100 (jaxlib 0.10.2)."""

from __future__ import annotations

import pytest

from tests.passes.xla.kernels.programs import of
from tests.passes.xla.kernels.unguided import I8, rescaled
from tests.passes.xla.test_simplify import kernels

X, W = of(512, 4096), of(4096, 8192, dtype=I8)
READ, MADE = 512 * 4096 * 2, 512 * 8192 * 2


def test_what_repeats_a_part_of_what_a_product_contracts_is_written() -> None:
    """XLA's ``loop_multiply_fusion`` and ``gemm_fusion_dot_general``, twice, and the activation: a
    weight of 32 MiB of eight bits is written in bf16."""
    down, scales = of(8192, 4096, dtype=I8), 32 * 8192 * 2
    whole = 4096 * 8192
    assert kernels(rescaled, X, W, of(32, 8192), down, of(64, 4096)) == [
        (whole + scales, 2 * whole),
        (READ + 2 * whole, MADE),
        (MADE, MADE),
        (whole + scales, 2 * whole),
        (MADE + 2 * whole, READ),
    ]


@pytest.mark.parametrize("shape", [(4096, 1), (1, 8192)])
def test_a_scale_for_each_input_or_output_is_loaded(shape) -> None:
    """As XLA's ``gemm_fusion_dot`` of adapters: no dim of the product is there in part."""
    scale = of(*shape)
    found = kernels(lambda x, w, s: x @ (w.astype(x.dtype) * s), X, W, scale)
    assert found == [(READ + 4096 * 8192 + 2 * max(shape), MADE)]
