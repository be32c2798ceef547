"""A training step of PyTorch's with sharded parameters.

sharded().capture(), sharded(kept=True).capture()
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import flint


@dataclass(frozen=True)
class Options:
    """How parameters are sharded."""

    computed: Any = torch.bfloat16
    reduced: Any = torch.float32
    kept: bool = False
    at_once: bool = False
    unsharded: bool = False
    replicated: bool = False
    accumulated: bool = False
    width: int = 32
    layers: int = 2
    checkpointed: bool = False
    clipped: bool = True


class Model(nn.Module):
    """Residual perceptrons."""

    def __init__(self, options):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.RMSNorm(16), nn.Linear(16, options.width), nn.SiLU(),
                nn.Linear(options.width, 16),
            )
            for _ in range(options.layers)
        )  # fmt: skip
        self.head = nn.Linear(16, 8)
        self.checkpointed = options.checkpointed

    def forward(self, x):
        for layer in self.layers:
            if self.checkpointed:
                x = x + torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
            else:
                x = x + layer(x)
        return self.head(x)


def sharded(**changes):
    """A captured step on two ranks, with these changes."""
    options = replace(Options(), **changes)

    def setup(mesh):
        model = Model(options).to(mesh.device_type)
        policy = MixedPrecisionPolicy(options.computed, options.reduced)
        settings = {"mesh": mesh, "mp_policy": policy, "reshard_after_forward": not options.kept}
        if options.replicated:
            model = nn.parallel.DistributedDataParallel(model)
        elif not options.unsharded:
            for part in () if options.at_once else model.layers:
                fully_shard(part, **settings)
            fully_shard(model, **settings)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)
        return model, optimizer, torch.ones(4, 16, device=mesh.device_type)

    def step(model, optimizer, x):
        if options.accumulated:
            model.set_requires_gradient_sync(False)
            model(x).float().square().mean().backward()
            model.set_requires_gradient_sync(True)
        model(x).float().square().mean().backward()
        if options.clipped:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad()

    return flint.capture(step, mesh=(2,), axes=("dp",), setup=setup, framework="torch")


base = sharded()
