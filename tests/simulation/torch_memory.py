"""Bytes that eager PyTorch steps need beside what is there before: the allocator's account, ours.

Run as a program; prints one JSON object per case.
"""

from __future__ import annotations

import functools
import json

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import flint
from flint.passes import apply
from flint.simulation.memory import peak_memory

WIDTH, TOKENS, VOCABULARY, BLOCKS = 128, 256, 512, 3


class Block(nn.Module):
    """A feed-forward network beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.silu(self.up(x)))


class Net(nn.Module):
    """A language model without attention; its kernels are the same on every device."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.again = again

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x)


OPTIMIZERS = {
    "AdamW foreach": functools.partial(torch.optim.AdamW, foreach=True),
    "AdamW loop": functools.partial(torch.optim.AdamW, foreach=False),
}


def build(optimizer, again, mesh=None):
    """Arguments of ``step``, on the mesh's device or the CPU."""
    device = mesh.device_type if mesh is not None else "cpu"
    net = Net(again).to(device)
    tokens = torch.randint(0, VOCABULARY, (2, TOKENS), device=device)
    return net, OPTIMIZERS[optimizer](net.parameters()), tokens


def step(net, optimizer, tokens):
    """One training step."""
    loss = F.cross_entropy(net(tokens[0]), tokens[1])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def allocated(optimizer, again):
    """The most that the CPU's allocator had given out beyond what there was before a step."""
    arguments = build(optimizer, again)
    step(*arguments)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step(*arguments)
    events = seen.profiler.kineto_results.events()
    found = sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns())
    now = most = 0
    for event in found:
        now += event.nbytes()
        most = max(most, now)
    return most


def main() -> None:
    """Print both accounts of every case."""
    for optimizer in OPTIMIZERS:
        for again in (False, True):
            setup = functools.partial(build, optimizer, again)
            captured = flint.capture(
                step, mesh=(1,), axes=("dp",), setup=setup, framework="torch"
            ).capture()
            [program] = captured.programs
            ours = peak_memory(apply(program.graph, "kernel"), program.inputs)
            print(json.dumps([optimizer, again, allocated(optimizer, again), ours.peak]))


if __name__ == "__main__":
    main()
