"""cuDNN's attention compiled for GPUs that are not here, each device its own heads and batches."""

from __future__ import annotations

import pytest

from tests.capture.test_partitioning_rules import PRODUCT, attention
from tests.targets.conftest import need


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
