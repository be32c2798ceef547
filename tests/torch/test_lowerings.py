"""Every lowering against PyTorch's eager kernel: one call on random inputs, executed by XLA."""

from __future__ import annotations

import pytest
import torch

from tests.torch.checking import check
from tests.torch.lowering_cases import CASES
from tests.torch.real_recording import record


@pytest.mark.parametrize("name", CASES)
def test_a_lowering_computes_what_eager_pytorch_computes(name):
    function, tensors = CASES[name]

    def step(*tensors):
        out = function(*tensors)
        return [out] if isinstance(out, torch.Tensor) else list(out)

    with torch.no_grad():
        check(record(step, *[tensor.clone() for tensor in tensors]))
