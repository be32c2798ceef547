"""Attention in an opened step, against a profiler's trace of a compiled one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import flint
from tests.frontends.torch.inductor.test_compiled_steps import RAN, block, infer

FLASH = "_scaled_dot_product_flash_attention"


def test_an_opened_step_calls_attention_whole_as_a_gpu_ran_it():
    """Of the kernels that the profile shows, it is the one that no compiler opens."""
    step = flint.capture(infer, mesh=(1,), axes=("dp",), setup=block, framework="torch")
    graph = step.capture(options={"fuse": True}).programs[0].graph
    found = [node for node in graph if "attention" in node.op]
    assert [node.op for node in found] == [f"aten.{FLASH}.default"]
    shapes = [[item.shape for item in node.operand_types] for node in found]
    assert shapes == [operands for name, operands in RAN if name == FLASH]
