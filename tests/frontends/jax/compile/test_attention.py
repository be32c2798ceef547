"""Ops with a partitioning rule in Python, compiled; cuDNN's attention is one."""

from __future__ import annotations

import pytest

from flint.errors import FlintError
from tests.frontends.jax.compile.conftest import need
from tests.frontends.jax.steps import ruled
from tests.frontends.jax.test_partitioning_rules import PRODUCT, attention


@pytest.mark.parametrize("target", ["h100", "b200"])
def test_cudnns_attention_is_one_library_call_per_direction(target):
    need("cuda")
    workload = attention.capture(level="optimized", target=target)
    graph = workload.programs[0].graph
    flops = zip((node.op for node in graph), graph.flops_by_node().tolist(), strict=True)
    # Two products forward; backward the scores again and four gradients; 8 devices share it.
    assert {name: count for name, count in flops if "cudnn" in name} == {
        "__cudnn$fmhaSoftmax": 2 * PRODUCT // 8,
        "__cudnn$fmhaSoftmaxBackward": 5 * PRODUCT // 8,
    }
    assert not graph.tables.communications


def test_a_rule_of_the_users_is_followed():
    need("cuda")
    [gathered] = [
        item
        for item in ruled.capture(level="optimized", target="h100").programs[0].graph
        if item.communication
    ]
    # 8 of 32 rows on a device, half of each row's 64 elements, f32, over "model".
    assert (gathered.op, gathered.communication.bytes_in) == ("all_gather", 8 * 32 * 4)


def test_the_tpus_compiler_does_not_accept_this_op_and_that_is_reported():
    need("tpu")
    with pytest.raises(
        FlintError, match=r"does not support ops with a partitioning rule.*custom_partitioning"
    ):
        ruled.capture(level="optimized", target="tpu-v5p")
