"""Products in narrow types: as numpy computes them, three per weight, on the right unit."""

from __future__ import annotations

import collections
from dataclasses import replace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from flint.graph.work import Unit
from flint.models.jax import llama3
from flint.models.jax.low_precision import PRODUCTS
from tests.support.shared import quick

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
LARGEST = {E4M3: 448.0, E5M2: 57344.0}


def per_tensor(x, dtype):
    """What stays of ``x`` when its largest element is cast to the type's largest."""
    scale = LARGEST[dtype] / np.abs(x).max()
    return (x * scale).astype(dtype).astype(np.float64) / scale


def cut(x, dtype):
    return np.clip(x, -LARGEST[dtype], LARGEST[dtype]).astype(dtype).astype(np.float64)


def in_blocks(x, dtype, block=32):
    """The same for every 32 elements of a row, with powers of two."""
    parts = x.reshape(x.shape[0], -1, block)
    largest = np.abs(parts).max(-1, keepdims=True) / LARGEST[dtype]
    scale = 2.0 ** np.ceil(np.log2(largest))
    return ((parts / scale).astype(dtype).astype(np.float64) * scale).reshape(x.shape)


#: Product -> how rows are rounded, and whether gradients are in e5m2.
KINDS = {"f8": (per_tensor, E5M2), "f8_static": (cut, E5M2), "mxf8": (in_blocks, E4M3)}


@pytest.mark.thorough
@pytest.mark.parametrize("name", quick(KINDS, "f8"))
def test_a_product_and_its_derivatives_are_those_of_rounded_operands(name):
    rounded, of_gradient = KINDS[name]
    random = np.random.default_rng(0)
    x, w, g = (
        random.standard_normal(shape).astype(np.float32) for shape in ((64, 96), (96, 32), (64, 32))
    )
    made, back = jax.vjp(PRODUCTS[name], x, w)
    of_x, of_w = back(jnp.asarray(g))
    np.testing.assert_allclose(made, rounded(x, E4M3) @ rounded(w.T, E4M3).T, rtol=1e-3, atol=1e-3)
    expected = rounded(g, of_gradient) @ rounded(w, E4M3).T
    np.testing.assert_allclose(of_x, expected, rtol=1e-3, atol=1e-3)
    expected = rounded(x.T, E4M3) @ rounded(g.T, of_gradient).T
    np.testing.assert_allclose(of_w, expected, rtol=1e-3, atol=1e-3)
    assert np.abs(made - x @ w).max() / np.abs(x @ w).max() < 0.1


def captured(precision, sequence=32):
    config = replace(llama3.TINY, precision=precision, remat="none", scan=False, sequence=sequence)
    return config, llama3.training(config, mesh=(1,), axes=("data",)).capture()


@pytest.mark.thorough
def test_blocks_multiply_three_times_per_weight_and_layer_in_narrow_types():
    """Weights of a layer: 64 x (8 + 2 x 4 + 8) heads of 8, and 3 x 64 x 128; every product has 2
    FLOPs per weight and token, one forward in e4m3, two backward with a gradient in e5m2."""
    config, workload = captured("f8")
    weights = 2 * (64 * (8 + 2 * 4 + 8) * 8 + 3 * 64 * 128)
    tokens = config.sequence
    found = collections.Counter()
    for node in workload.graph:
        for item in node.work.items:
            found[item.dtype] += item.flops if item.unit == Unit.MATMUL else 0
    assert found["f8E4M3FN"] == 2 * weights * tokens
    assert found["f8E5M2"] == 2 * 2 * weights * tokens


def test_every_cast_and_every_maximum_is_an_op():
    """Seven weights in two layers; of each two operands forward and four backward are cast."""
    _, workload = captured("f8")
    casts = [
        node
        for node in workload.graph
        if node.op == "convert" and node.result_types[0].dtype.startswith("f8")
    ]
    assert len(casts) == 2 * 7 * 6


def test_block_scaled_products_on_gpus_are_their_call():
    """All three products of a weight are; the sums are over 64, 96 or 128, blocks of 32."""
    config, workload = captured("mxf8_cuda", sequence=64)
    calls = [node for node in workload.graph if "block_scaled_dot" in node.op]
    assert len(calls) == 2 * 7 * 3
    weights = 2 * (64 * (8 + 2 * 4 + 8) * 8 + 3 * 64 * 128)
    items = [item for node in calls for item in node.work.items]
    assert {item.dtype for item in items} == {"mxf8"}
    assert sum(item.flops for item in items) == 3 * 2 * weights * config.sequence
