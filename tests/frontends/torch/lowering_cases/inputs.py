"""Random tensors of a kind, from one seed: what cases are given."""

from __future__ import annotations

import torch

aten = torch.ops.aten
SEEDED = torch.Generator().manual_seed(0)


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=SEEDED).to(dtype)


def positive(*shape, dtype=torch.float32):
    return (torch.rand(shape, generator=SEEDED) + 0.1).to(dtype)


def shallow(*shape, dtype=torch.float32):
    return (torch.rand(shape, generator=SEEDED) * 1.8 - 0.9).to(dtype)


def steep(*shape, dtype=torch.float32):
    return (torch.rand(shape, generator=SEEDED) + 1.1).to(dtype)


def index(high, *shape):
    return torch.randint(0, high, shape, generator=SEEDED)


def mask(*shape):
    return torch.rand(shape, generator=SEEDED) > 0.5


def half(*shape):
    return normal(*shape, dtype=torch.bfloat16)


def named(text):
    base, overload = text.split(".")
    return getattr(getattr(aten, base), overload)
