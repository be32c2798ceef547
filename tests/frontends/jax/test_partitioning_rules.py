"""Ops that bring a partitioning rule in Python: JAX's custom_partitioning, and cuDNN's attention.

That the rule is followed as in a real run is seen in test_against_execution.py (step ``ruled``).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax._src.cudnn import fused_attention_stablehlo as cudnn
from jax.experimental.custom_partitioning import custom_partitioning

import flint
from flint.errors import FlintError
from tests.frontends.jax.steps import placed

BATCH, LENGTH, HEADS, SIZE = 8, 32, 4, 16
MESH = (4, 2)


def attention_setup(mesh):
    shape = (BATCH, LENGTH, HEADS, SIZE)
    return [placed(mesh, shape, "data", None, "model", dtype=jnp.bfloat16) for _ in range(3)]


@flint.capture(mesh=MESH, axes=("data", "model"), setup=attention_setup)
def attention(q, k, v):
    def loss(q, k, v):
        found = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
        return found.astype(jnp.float32).sum()

    return jax.grad(loss, argnums=(0, 1, 2))(q, k, v)


# Scores and weighted values, 2 FLOPs each; backward the scores again and four gradients.  A query
# sees the keys up to its own place: 1 + 2 + ... + LENGTH scores of a head.
PRODUCT = 2 * BATCH * HEADS * (LENGTH * (LENGTH + 1) // 2) * SIZE


@pytest.mark.parametrize(("level", "devices"), [("partitioned", 8), ("logical", 1)])
def test_cudnns_attention_is_captured_without_cudnn(level, devices):
    workload = attention.capture(level=level)
    graph = workload.programs[0].graph
    flops = zip((node.op for node in graph), graph.flops_by_node().tolist(), strict=True)
    assert {name: count for name, count in flops if "cudnn" in name} == {
        "__cudnn$fmhaSoftmax": 2 * PRODUCT // devices,
        "__cudnn$fmhaSoftmaxBackward": 5 * PRODUCT // devices,
    }


def test_nothing_of_jax_stays_changed():
    before = cudnn.check_cudnn_version
    attention.capture()
    assert cudnn.check_cudnn_version is before
    with pytest.raises(RuntimeError, match="cuDNN"):
        jax.jit(attention.__wrapped__).trace(*[jnp.ones((2, 8, 2, 16), jnp.bfloat16)] * 3)


def failing(mesh, operands, result):
    raise ValueError("rows only")


def test_a_rule_that_raises_is_one_line_with_its_words():
    @custom_partitioning
    def refused(x):
        return x + 1

    refused.def_partition(partition=failing, sharding_rule="i j -> i j")

    @flint.capture(mesh=(2,), axes=("data",), setup=lambda mesh: (placed(mesh, (4, 4), "data"),))
    def step(x):
        return refused(x)

    with pytest.raises(FlintError, match="ValueError: rows only") as error:
        step.capture()
    assert "\n" not in str(error.value)
