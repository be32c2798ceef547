"""Complex numbers that a program makes from Python's: infinite ones have the values of reality."""

from __future__ import annotations

import math

import torch

from flint.frontends.torch.session import record
from tests.frontends.torch.in_child import in_child

NUMBERS = (complex(0, math.inf), complex(-math.inf, 1))


def made(device):
    """A number of each kind, finite ones too, and what is read of the infinite ones."""
    torch.full((2,), 2j, dtype=torch.complex64, device=device)
    tensors = [torch.full((), item, dtype=torch.complex64, device=device) for item in NUMBERS]
    return [[tensor.real.item(), tensor.imag.item()] for tensor in tensors]


def read_of_the_gpu():
    read = []
    record(lambda: read.append(made("cuda")), lambda mesh: (), (1,), ("dp",), 0)
    return read[0]


def test_complex_constants_are_made_and_infinite_ones_are_known():
    assert [list(item) for item in in_child(read_of_the_gpu)] == made("cpu")
