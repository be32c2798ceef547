"""Compiled parts that run again in the backward pass, with ops that may draw random numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.frontends.torch.in_child import record_in_child

BATCH, LENGTH, HEADS, WIDTH = 2, 32, 4, 64


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + checkpoint(self.attend, x, use_reentrant=False)

    def attend(self, x):
        heads = (
            part.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)
            for part in self.qkv(x).split(WIDTH, -1)
        )
        y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))


def setup(mesh):
    x = torch.randn(BATCH, LENGTH, WIDTH, device="cuda", dtype=torch.bfloat16)
    return torch.compile(Attention().cuda().bfloat16()), x


def step(model, x):
    model(x).float().square().mean().backward()


@pytest.mark.thorough
def test_attention_in_a_compiled_checkpointed_part_runs_again():
    """PyTorch keeps the generator's state for attention, which may have dropout.

    Products: 2 forward; the first again, and not the second, whose result nothing needs; 3 for
    gradients, because x needs none.
    """
    found = record_in_child(step, setup, (1,), ("dp",), compile_for="h100-sxm")
    assert not found.warnings
    names = [op.name.split(".")[1] for op in found.ops]
    assert len([name for name in names if name in ("mm", "addmm")]) == 2 + 1 + 3
    attention = [name for name in names if "attention" in name]
    assert ["backward" in name for name in attention] == [False, False, True]
