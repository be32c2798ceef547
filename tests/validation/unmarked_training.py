"""Training that ends in no marked step: ``python unmarked_training.py gan rank0.json``.

Each iteration of ``gan`` draws three batches, of ``outer`` too, of the others one.
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))


def gan(iterations: int) -> None:
    """Both models have the same layers."""
    generator, critic = model(), model()
    steps = [torch.optim.Adam(part.parameters()) for part in (generator, critic)]
    for _ in range(iterations):
        steps[1].zero_grad()
        fake = generator(torch.randn(4, 8)).detach()
        (critic(torch.randn(4, 8)) - critic(fake)).mean().backward()
        steps[1].step()
        steps[0].zero_grad()
        (-critic(generator(torch.randn(4, 8)))).mean().backward()
        steps[0].step()


def hooks(iterations: int) -> None:
    """A parameter is updated as soon as it has its gradient."""
    layers = model()
    steps = {part: torch.optim.SGD([part], 0.1) for part in layers.parameters()}
    for part in layers.parameters():
        part.register_post_accumulate_grad_hook(lambda part: steps[part].step())
    for _ in range(iterations):
        layers(torch.randn(4, 8)).sum().backward()


def lbfgs(iterations: int) -> None:
    """Gradients are computed within the optimizer's step."""
    layers = model()
    optimizer = torch.optim.LBFGS(layers.parameters(), max_iter=3)
    for _ in range(iterations):
        batch = torch.randn(4, 8)

        def loss(batch: torch.Tensor = batch) -> torch.Tensor:
            optimizer.zero_grad()
            value = layers(batch).square().sum()
            value.backward()
            return value

        optimizer.step(loss)


def outer(iterations: int) -> None:
    """Local steps: after each third one another optimizer moves the shared weights."""
    layers = model()
    shared = [part.detach().clone() for part in layers.parameters()]
    inner = torch.optim.AdamW(layers.parameters())
    outer = torch.optim.SGD(shared, lr=0.7, momentum=0.9, nesterov=True)
    for _ in range(iterations):
        for _ in range(3):
            inner.zero_grad()
            layers(torch.randn(4, 8)).square().mean().backward()
            inner.step()
        for old, new in zip(shared, layers.parameters(), strict=True):
            old.grad = old - new.detach()
        outer.step()
        with torch.no_grad():
            for old, new in zip(shared, layers.parameters(), strict=True):
                new.copy_(old)


TRAINING = {
    "gan": lambda: gan(3), "gan_once": lambda: gan(1), "hooks": lambda: hooks(3),
    "lbfgs": lambda: lbfgs(3), "outer": lambda: outer(3),
}  # fmt: skip

if __name__ == "__main__":
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        TRAINING[sys.argv[1]]()
    profiler.export_chrome_trace(sys.argv[2])
