"""Ops that a GPU has one kernel for: against the CUDA build's dispatch table, read from its YAML.

native_functions.yaml gives ``silu_backward`` and ``_fused_rms_norm`` a CUDA kernel each beside the
composition that any other backend would run.
"""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from tests.frontends.torch.in_child import record_in_child  # noqa: E402


def setup(mesh):
    x = torch.ones(4, 8, device="cuda", requires_grad=True)
    return x, torch.ones(8, device="cuda", requires_grad=True)


def kernels(step):
    recording = record_in_child(step, setup, (1,), ("dp",))
    return [op.name.removeprefix("aten.").split(".")[0] for op in recording.ops]


@pytest.mark.parametrize(
    ("function", "forward", "backward"),
    [
        (lambda x, w: functional.silu(x), "silu", "silu_backward"),
        (lambda x, w: functional.mish(x), "mish", "mish_backward"),
        (lambda x, w: functional.gelu(x), "gelu", "gelu_backward"),
        (lambda x, w: functional.rms_norm(x, (8,), w), "_fused_rms_norm",
         "_fused_rms_norm_backward"),
        (lambda x, w: functional.layer_norm(x, (8,), w), "native_layer_norm",
         "native_layer_norm_backward"),
        (lambda x, w: functional.softmax(x, -1), "_softmax", "_softmax_backward_data"),
    ],
)  # fmt: skip
def test_forward_and_backward_are_one_kernel_each(function, forward, backward):
    def step(x, w):
        y = function(x, w)
        torch.autograd.grad(y, x, torch.ones_like(y))

    assert kernels(step) == [forward, "ones_like", backward]


def test_a_weight_of_another_dtype_has_no_fused_norm():
    """The CUDA kernel takes one dtype; PyTorch composes the norm of other ops and warns."""

    def step(x, w):
        functional.rms_norm(x.bfloat16(), (8,), w)

    assert "_fused_rms_norm" not in kernels(step)


def made_with(rate, fused, mesh):
    lr = torch.tensor(1e-3, device=mesh.device_type if rate == "device" else "cpu")
    layer = torch.nn.Linear(8, 4).to(mesh.device_type)
    options = {"fused": True} if fused else {"foreach": True, "capturable": True}
    return (
        layer,
        torch.optim.AdamW(layer.parameters(), lr=lr, **options),
        torch.ones(2, 8, device=mesh.device_type),
    )


@pytest.mark.parametrize(
    ("rate", "fused"), [("device", True), ("host", True), ("device", False), ("host", False)]
)
def test_a_learning_rate_may_be_a_tensor(rate, fused):
    """PyTorch's example of changing the rate of a compiled optimizer."""

    def step(layer, optimizer, x):
        layer(x).sum().backward()
        optimizer.step()

    recording = record_in_child(step, functools.partial(made_with, rate, fused), (1,), ("dp",))
    updates = [op.name for op in recording.ops if op.phase == "optimizer"]
    kernel = "aten._fused_adamw_.tensor_lr" if fused else "aten._foreach_addcdiv_.Scalar"
    assert updates.count(kernel) == 1
    assert not recording.warnings
