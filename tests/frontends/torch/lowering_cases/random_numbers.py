"""Random numbers: a call that makes 4000, and the mean and deviation of its distribution."""

from __future__ import annotations

import math

import torch

from tests.frontends.torch.lowering_cases.inputs import aten

RANDOM = {
    "rand": (lambda: aten.rand.default([4000]), 0.5, 1 / math.sqrt(12)),
    "uniform_": (
        lambda: aten.uniform_.default(torch.empty(4000), -1.0, 3.0), 1.0, 4 / math.sqrt(12),
    ),
    "randn": (lambda: aten.randn.default([4000]), 0.0, 1.0),
    "normal_": (lambda: aten.normal_.default(torch.empty(4000), 2.0, 3.0), 2.0, 3.0),
    "normal of tensors": (
        lambda: aten.normal.Tensor_Tensor(torch.full((4000,), 2.0), torch.full((4000,), 3.0)),
        2.0, 3.0,
    ),
    "normal of a number": (
        lambda: aten.normal.float_Tensor(2.0, torch.full((4000,), 3.0)), 2.0, 3.0,
    ),
    "normal by a number": (
        lambda: aten.normal.Tensor_float(torch.full((4000,), 2.0), 3.0), 2.0, 3.0,
    ),
    "bernoulli_": (lambda: aten.bernoulli_.float(torch.empty(4000), 0.3), 0.3, math.sqrt(0.21)),
    "rand_like": (lambda: aten.rand_like.default(torch.empty(4000)), 0.5, 1 / math.sqrt(12)),
    "randn_like": (lambda: aten.randn_like.default(torch.empty(4000)), 0.0, 1.0),
    # Of n whole numbers in a row: the middle, sqrt((n^2 - 1) / 12).
    "randint": (lambda: aten.randint.low(3, 9, [4000]), 5.5, math.sqrt(35 / 12)),
    "randint_like": (
        lambda: aten.randint_like.default(torch.empty(4000), 5), 2.0, math.sqrt(2),
    ),
    "random_": (lambda: torch.empty(4000).random_(2, 5), 3.0, math.sqrt(8 / 12)),
    "exponential_": (lambda: aten.exponential_.default(torch.empty(4000), 2.0), 0.5, 0.5),
}  # fmt: skip
