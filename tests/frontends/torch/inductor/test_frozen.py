"""Compiled models with frozen weights, which are inputs here."""

from __future__ import annotations

import json

import torch
from torch import nn

from tests.frontends.torch.in_child import record_in_child

WIDTH, ROWS = 64, 32


class Exponential(nn.Module):
    """A product with something that follows from the weight alone."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH, WIDTH, device="cuda"))

    def forward(self, x):
        return x @ self.weight.exp()


def frozen(mesh):
    model = Exponential().eval()
    return torch.compile(model, options={"freezing": True}), torch.empty(ROWS, WIDTH, device="cuda")


def infer(model, x):
    with torch.no_grad():
        return model(x)


def test_what_follows_from_frozen_weights_is_computed_and_this_is_told():
    found = record_in_child(infer, frozen, (1,), ("dp",), compile_for="h100-sxm")
    (told,) = found.warnings
    assert "weights are not constants: what follows from them alone is computed again" in told
    exponential, product = (op for op in found.ops if "empty" not in op.name)
    work = json.loads(exponential.args[2])
    size = WIDTH * WIDTH * 4  # bytes of float32, each read once and written once
    assert (work["read"], work["written"]) == ([size], [size])
    assert (work["flops"], work["transcendentals"]) == (0, WIDTH * WIDTH)
    assert product.name == "aten.mm.out"
