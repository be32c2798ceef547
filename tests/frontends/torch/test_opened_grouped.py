"""Opened, a grouped product is the kernel that PyTorch launches: it moves as many bytes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import flint  # noqa: E402
from flint.cost.grouped import ROWS as SPLIT_ROWS  # noqa: E402
from flint.cost.grouped import SUMS, groups_of  # noqa: E402
from flint.passes import apply  # noqa: E402

ROWS, EXPERTS, WIDE, NARROW = 1024, 4, 256, 512
#: Two bytes an element, and four for each end of a group.
INPUT, WEIGHTS, RESULT = 2 * ROWS * WIDE, 2 * EXPERTS * WIDE * NARROW, 2 * ROWS * NARROW
ENDS = 4 * EXPERTS


def made(mesh):
    device = mesh.device_type
    rows = torch.randn(ROWS, WIDE, device=device, dtype=torch.bfloat16)
    weights = torch.randn(EXPERTS, WIDE * NARROW, device=device, dtype=torch.bfloat16)
    ends = torch.arange(1, 1 + EXPERTS, device=device, dtype=torch.int32) * (ROWS // EXPERTS)
    return rows.requires_grad_(), weights.requires_grad_(), ends


def step(rows, weights, ends):
    matrices = weights.view(EXPERTS, WIDE, NARROW)  # as FSDP's parameters, which are gathered flat
    torch._grouped_mm(rows, matrices, offs=ends).float().pow(2).sum().backward()


@pytest.mark.parametrize("opened", [False, True])
def test_its_kernels_read_transposes_in_place_and_write_bfloat16(opened) -> None:
    """Results, gradients of weights and of rows; PyTorch hands transposes over by their strides."""
    capture = flint.capture(mesh=(1,), axes=("dp",), setup=made)(step)
    kernels = apply(capture.capture(options={"fuse": opened}).graph, "kernel")
    products = [i for i, node in enumerate(kernels) if "grouped" in node.op or "ragged" in node.op]
    assert [(kernels.bytes_read[i], kernels.bytes_written[i]) for i in products] == [
        (INPUT + WEIGHTS + ENDS, RESULT),
        (INPUT + RESULT + ENDS, WEIGHTS),
        (RESULT + WEIGHTS + ENDS, INPUT),
    ]
    assert not [node.op for node in kernels if node.op == "transpose"]
    if opened:
        found = list(groups_of(kernels).values())
        assert found == [(EXPERTS, SPLIT_ROWS), (EXPERTS, SUMS), (EXPERTS, SPLIT_ROWS)]
