"""Steps that resize pictures, by mode."""

from __future__ import annotations

from functools import partial

import torch

#: Mode -> shape and size of the result.
CASES = {
    "linear": ((2, 3, 5), (10,)),
    "nearest": ((2, 3, 4, 5), (8, 10)),
    "bilinear": ((2, 3, 4, 5), (8, 10)),
    "bicubic": ((2, 3, 4, 5), (8, 10)),
    "trilinear": ((2, 3, 4, 5, 6), (8, 10, 12)),
}


def resized(x, mode, **options):
    torch.nn.functional.interpolate(x, size=CASES[mode][1], mode=mode, **options).sum().backward()


def given(mode, mesh=None):
    device = "cpu" if mesh is None else mesh.device_type
    return (torch.zeros(CASES[mode][0], device=device, requires_grad=True),)


def step_of(mode, corners):
    """The step, and what it is called with on a mesh or on the CPU."""
    options = {} if mode == "nearest" else {"align_corners": corners}
    return partial(resized, mode=mode, **options), partial(given, mode)
