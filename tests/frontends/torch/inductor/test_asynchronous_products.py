"""Tensor parallelism whose collectives Inductor makes parts of products (asynchronous TP)."""

from __future__ import annotations

from math import prod

import pytest
import torch
from torch import nn
from torch.distributed._symmetric_memory import enable_symm_mem_for_group
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)  # fmt: skip

from tests.frontends.torch.in_child import record_in_child

RANKS, BATCH, LENGTH, DIM, HIDDEN = 8, 4, 128, 256, 1024


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(DIM)
        self.up = nn.Linear(DIM, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, DIM, bias=False)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def setup(mesh):
    enable_symm_mem_for_group(mesh.get_group().group_name)
    torch._inductor.config._micro_pipeline_tp = True
    model = parallelize_module(
        Layer().cuda(), mesh,
        {
            "norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        },
    )  # fmt: skip
    x = torch.empty(BATCH, LENGTH // RANKS, DIM, device="cuda", requires_grad=True)
    return torch.compile(model), DTensor.from_local(x, mesh, [Shard(1)])


def step(model, x):
    model(x).to_local().sum().backward()


@pytest.mark.thorough
def test_its_exchanges_and_products_are_those_of_the_eager_layer():
    """Forward an all-gather before ``up`` and a reduce-scatter after ``down``; backward the other
    way round."""
    found = record_in_child(step, setup, (RANKS,), ("tp",), compile_for="h100-sxm")
    assert not any("eager code" in text for text in found.warnings)
    assert any("fused_matmul_reduce_scatter" in text for text in found.warnings)
    kinds = [op.name for op in found.ops if op.group >= 0]
    assert sum("gather" in kind for kind in kinds) == 2
    assert sum("reduce_scatter" in kind for kind in kinds) == 2
    products = [op for op in found.ops if op.name.split(".")[1] in ("mm", "bmm", "addmm")]
    # Two products forward, four backward, of one size each: multiplied and added.
    flops = sum(2 * prod(op.args[0].shape) * op.args[1].shape[-1] for op in products)
    assert flops == 6 * 2 * BATCH * LENGTH * DIM * HIDDEN // RANKS
