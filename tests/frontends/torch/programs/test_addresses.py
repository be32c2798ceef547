"""Addresses of tensors without memory, which tell who shares it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import flint.frontends.torch.programs.rank  # noqa: E402, F401  # here, not in every child
from tests.frontends.torch.in_child import record_in_child  # noqa: E402


def test_tensors_have_one_address_if_they_share_memory(said):
    assert said("""
        x, y, host = (torch.empty(4, 8, device=device) for device in ("cuda", "cuda", "cpu"))
        parameter, row = torch.nn.Parameter(x), x[1]
        freed = torch.empty(8, device="cuda")
        freed.untyped_storage().resize_(0)
        say(x.data_ptr() == parameter.data_ptr() != 0, row.data_ptr() - x.data_ptr(),
            x.data_ptr() == y.data_ptr(), freed.data_ptr(), host.data_ptr() != 0,
            row.untyped_storage().data_ptr() == x.untyped_storage().data_ptr())
    """) == [True, 32, False, 0, True, True]


def partly_frozen(mesh):
    """A root whose weights have no gradients, as under LoRA, around a module that learns."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    device = mesh.device_type
    layers = [torch.nn.Linear(16, 16, device=device) for _ in range(2)]
    inner = FullyShardedDataParallel(layers[1], use_orig_params=True)
    model = torch.nn.Sequential(torch.nn.Embedding(16, 16, device=device), inner, layers[0])
    for frozen in (model[0], model[2]):
        frozen.requires_grad_(False)
    model = FullyShardedDataParallel(model, use_orig_params=True)
    tokens = torch.zeros(2, 3, dtype=torch.int64, device=device)
    model(tokens).sum().backward()
    return model, tokens


def test_frozen_weights_of_fsdp1_are_gathered_in_each_step():
    """Those of the root once, the inner module's once more in the backward pass."""

    def step(model, tokens):
        model(tokens).sum().backward()

    names = [
        op.name.split(".")[1] for op in record_in_child(step, partly_frozen, (2,), ("dp",)).ops
    ]
    found = [name for name in names if name.startswith(("_allgather", "_reduce_scatter"))]
    assert found == ["_allgather_base_"] * 3 + ["_reduce_scatter_base_"]
