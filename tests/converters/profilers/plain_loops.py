"""Loops that no mark and no optimizer ends: ``python plain_loops.py FOLDER``.

Each is profiled as ``NAME.json`` and as the execution trace ``NAME_et.json``.  An iteration draws
one random number; ``LOOPS`` says how many there are.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile

WIDTH = 8


class Block(nn.Module):
    """A layer of a decoder; keeps the keys that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.cache: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.mixed(x).chunk(3, -1)
        if self.cache:
            key, value = (torch.cat(pair, 1) for pair in zip(self.cache, (key, value), strict=True))
        self.cache = [key, value]
        return x + self.out(attention(query, key, value).relu())


class Decoder(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(16, WIDTH), nn.Linear(WIDTH, 16)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def vision() -> nn.Module:
    """A stem, three equal blocks, a head."""
    block = lambda: (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())  # noqa: E731
    blocks = [layer for _ in range(3) for layer in block()]
    return nn.Sequential(nn.Conv2d(3, 4, 3), *blocks, nn.Flatten(), nn.Linear(4 * 36, 10))


@torch.no_grad()
def inference() -> None:
    model = vision().eval()
    for _ in range(5):
        model(torch.randn(2, 3, 8, 8))


@torch.no_grad()
def decoding() -> None:
    """A prompt, and four tokens after it."""
    model, text = Decoder(4), torch.zeros(1, 6, dtype=torch.int64)
    for _ in range(5):
        torch.rand(1)
        text = model(text)[:, -1:].argmax(-1)


@torch.no_grad()
def one_pass() -> None:
    """Four equal layers are no loop."""
    torch.rand(1)
    Decoder(4)(torch.zeros(1, 6, dtype=torch.int64))


@torch.no_grad()
def stack() -> None:
    """Nothing but equal layers."""
    x = torch.rand(WIDTH, WIDTH)
    for layer in [nn.Linear(WIDTH, WIDTH) for _ in range(8)]:
        x = layer(x).relu()


def gradients() -> None:
    """What a benchmark of forward and backward passes does."""
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(4)))
    for _ in range(4):
        model(torch.rand(2, WIDTH)).sum().backward()


def accumulation() -> None:
    """One update after three batches."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        model(torch.rand(2, WIDTH)).sum().backward()
    optimizer.step()


def training() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.rand(2, WIDTH)).sum().backward()
        optimizer.step()


#: Loops and the steps in each: one where nothing may be cut.
LOOPS = {
    inference: 5, decoding: 5, one_pass: 1, stack: 1, gradients: 4, accumulation: 1, training: 3,
}  # fmt: skip

if __name__ == "__main__":
    torch.set_num_threads(1)
    for loop in LOOPS:
        folder = Path(sys.argv[1])
        recorder = ExecutionTraceObserver()
        recorder.register_callback(str(folder / f"{loop.__name__}_et.json"))
        activities = [ProfilerActivity.CPU]
        with profile(
            activities=activities, record_shapes=True, execution_trace_observer=recorder
        ) as profiler:
            loop()
        profiler.export_chrome_trace(str(folder / f"{loop.__name__}.json"))
