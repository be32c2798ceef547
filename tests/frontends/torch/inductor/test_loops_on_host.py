"""Loops that Inductor counts in kernels for the host: they have the stated products."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan

from tests.frontends.torch.in_child import record_in_child

STEPS, ROWS, WIDTH = 6, 32, 64


def scanned(xs, weight):
    """Two products a step."""

    def step(carried, x):
        return (carried + x) @ weight, carried @ weight

    return scan(step, torch.zeros(ROWS, WIDTH, device=xs.device), xs)


def each(xs, weight):
    """One product and its tanh a step."""
    return mapped(lambda x, weight: torch.tanh(x @ weight), xs, weight)


@pytest.mark.parametrize(("function", "products"), [(scanned, 2), (each, 1)])
def test_a_loop_over_a_tensor_has_an_iteration_for_each_of_its_parts(function, products):
    def setup(mesh):
        xs = torch.empty(STEPS, ROWS, WIDTH, device="cuda")
        weight = torch.empty(WIDTH, WIDTH, device="cuda")
        return torch.compile(function, fullgraph=True), xs, weight

    def run(function, *args):
        with torch.no_grad():
            function(*args)

    found = record_in_child(run, setup, (1,), ("dp",), compile_for="h100-sxm")
    assert not found.warnings, found.warnings
    made = [op for op in found.ops if ".mm" in op.name]
    assert len(made) == products * STEPS
    shapes = [[item.shape for item in op.args] for op in made]
    assert shapes == [[(ROWS, WIDTH), (WIDTH, WIDTH)]] * len(made)
