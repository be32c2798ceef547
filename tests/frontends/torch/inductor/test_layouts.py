"""Layouts in compiled steps: Inductor plans with those that cuDNN's convolutions give."""

from __future__ import annotations

import torch
from torch import nn

from tests.frontends.torch.in_child import record_in_child


def images(mesh):
    with torch.device("cuda"):
        model = nn.Sequential(nn.Conv2d(16, 32, 3), nn.ReLU()).half()
        x = torch.empty(2, 16, 8, 8, dtype=torch.float16)
    return torch.compile(model), x.contiguous(memory_format=torch.channels_last)


def infer(model, x):
    with torch.no_grad():
        return model(x)


def test_a_convolution_keeps_channels_last_when_it_is_compiled():
    found = record_in_child(infer, images, (1,), ("dp",), compile_for="h100-sxm")
    (convolution,) = (op for op in found.ops if op.name.startswith("aten.conv"))
    (written,) = convolution.results
    # [2, 32, 6, 6] with channels last: rows of 6 x 32 elements, of which neighbours are channels.
    assert written.stride == (6 * 6 * 32, 1, 6 * 32, 32)
    assert not found.warnings, found.warnings
