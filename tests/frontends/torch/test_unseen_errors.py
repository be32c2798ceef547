"""Errors that are raised during backward, on their way through PyTorch's C++, are reported."""

from __future__ import annotations

import pytest
import torch

from flint.errors import FlintError
from tests.frontends.torch.in_child import record_in_child


def rows(mesh):
    return (torch.ones(4, 8, device=mesh.device_type, requires_grad=True),)


def by_a_hook(x):
    y = x.sum()
    y.register_hook(lambda grad: 1 / 0)
    y.backward()


def by_a_hook_of_a_parameter(x):
    x.register_post_accumulate_grad_hook(lambda grad: (1,))
    x.sum().backward()


class Reads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad[: int(grad.argmax())]


def by_a_value(x):
    Reads.apply(x).sum().backward()


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (by_a_hook, r"failed at .*test_unseen_errors.py:\d+: ZeroDivisionError: division by zero"),
        (by_a_hook_of_a_parameter, "expected Variable, but hook returned 'tuple'"),
        (by_a_value, r"an integer tensor's value is read at .*test_unseen_errors.py:\d+"),
    ],
)
def test_an_error_in_backward_is_reported_with_its_line(step, text):
    with pytest.raises(FlintError, match=text):
        record_in_child(step, rows, (1,), ("x",))
