"""Gradients of losses that PyTorch fills with zeros before their kernels write them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from flint.frontends.torch.emission import emitted  # noqa: E402
from flint.stablehlo.read.reader import read_mlir  # noqa: E402
from flint.stablehlo.walker import walk  # noqa: E402
from tests.frontends.torch.in_child import record_in_child  # noqa: E402


def given(mesh):
    made = torch.ones(64, 32, device=mesh.device_type, requires_grad=True)
    return made, torch.zeros(64, 32, device=mesh.device_type)


@pytest.mark.parametrize(
    ("loss", "flops"),
    # The difference, times the incoming gradient and 2 / size; the others also choose by size.
    [("mse_loss", 3), ("smooth_l1_loss", 4), ("huber_loss", 4)],
)
def test_the_gradient_of_a_loss_is_filled_before_it_is_written(loss, flops):
    """aten/src/ATen/native/Loss.cpp: ``grad_input = at::zeros_like(input)``."""

    def step(made, data):
        return torch.autograd.grad(getattr(functional, loss)(made, data), made)

    recording = record_in_child(step, given, (1,), ("dp",))
    fill, write = recording.ops[-2:]
    assert fill.name == "aten.zeros_like.default"
    assert fill.results == write.writes == recording.results
    graph = walk(read_mlir(emitted(recording).data, "step")).graph
    work = {node.op: node.work for node in graph}
    size = 4 * 64 * 32
    assert (work[fill.name].read, work[fill.name].written) == (0, size)
    # The kernel reads what was made, the data and one number.
    assert (work[write.name].read, work[write.name].written) == (2 * size + 4, size)
    assert sum(item.flops for item in work[write.name].items) >= flops * 64 * 32
