"""Linear algebra in compiled code: PyTorch's kernels, whose strides differ by device."""

from __future__ import annotations

import pytest
import torch

from tests.frontends.torch.in_child import record_in_child


def factorized(x):
    return torch.linalg.svdvals(x).sum() + torch.linalg.det(x)


def setup(mesh):
    return torch.compile(factorized), torch.ones(16, 16, device="cuda", requires_grad=True)


def step(function, x):
    function(x).backward()


@pytest.mark.thorough
def test_a_compiled_decomposition_runs_and_so_does_its_backward_pass():
    names = [
        op.name for op in record_in_child(step, setup, (1,), ("dp",), compile_for="h100-sxm").ops
    ]
    expected = {name for name in names if "svd" in name or "det" in name}
    assert {"aten._linalg_svd.default"} <= expected
