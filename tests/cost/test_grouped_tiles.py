"""Tiles of grouped products along the sides that no group splits, as JAX's kernel has them."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest

from flint.cost.grouped import whole_tiles
from flint.cost.systems import load_system
from tests.cost.test_kernels import grouped, seconds


@pytest.mark.parametrize("side", [768, 1024, 1408, 2048, 2880])
def test_tiles_of_grouped_products_are_whole_as_in_the_kernel_of_jax(side):
    """By the function that counts the tiles of the kernel's grid, no wider than the matrix."""
    gmm = import_module("jax.experimental.pallas.ops.tpu.megablox.gmm")
    tile = min(1024, side)
    assert whole_tiles(side, 1024) == gmm._calculate_irregular_num_tiles(side, tile)[0] * tile


def test_the_sides_of_a_grouped_product_that_no_group_splits_are_whole_tiles():
    """1408 columns are two tiles of 1024; rows and, of summed groups, k are what groups split."""
    kernel = replace(load_system("tpu-v5p-pod").accelerator.kernel, latency=0.0)
    v5p = load_system("tpu-v5p-pod")
    v5p = replace(v5p, accelerator=replace(v5p.accelerator, kernel=kernel))
    for summed, one, two in (
        (False, (4096, 1408, 2048), (4096, 2048, 2048)),
        (False, (4096, 2048, 1408), (4096, 2048, 2048)),
        (True, (2048, 1408, 4096), (2048, 2048, 4096)),
    ):
        narrow, wide = (seconds(grouped(8, *dims, summed=summed), v5p) for dims in (one, two))
        assert narrow == pytest.approx(wide, rel=1e-3)
