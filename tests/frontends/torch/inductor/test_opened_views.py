"""Opened captures: views that products and kernels of the framework take as they are."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402

import flint  # noqa: E402
from flint.passes import apply  # noqa: E402

ROWS, WIDTH, HIDDEN = 8, 16, 32
F32 = 4
#: How names of kernels begin that FSDP and a fused optimizer launch, compiled or not.
OUTSIDE = ("fsdp.", "aten._foreach_", "aten._fused_adamw")


def kernels(step, setup, mesh=(1,), granularity="kernel", fuse=True):
    capture = flint.capture(step, mesh=mesh, axes=("dp",), setup=setup, framework="torch")
    workload = capture.capture(options={"fuse": fuse, "audit": 0})
    graph = apply(workload.programs[0].graph, granularity)
    return [
        (node.op, node.work.read + node.work.written)
        for node in graph
        if node.work.read + node.work.written
    ]


def operands(mesh):
    return (
        torch.empty((2 * ROWS, WIDTH), device="cuda"),
        torch.empty((HIDDEN, WIDTH), device="cuda"),
        torch.empty((WIDTH, HIDDEN), device="cuda"),
    )


def gated(x, gate, up):
    """Two parts of ``x``, each of which two products read, and ``gate`` transposed, twice."""
    return [each for part in x.split(ROWS) for each in (part @ gate.T, part @ up)]


@pytest.mark.parametrize("granularity", ["kernel", "inductor"])
def test_products_read_slices_and_transposes_in_place(granularity):
    """cuBLAS takes an address and strides: four kernels, each of which reads its part of ``x`` and
    a weight, and writes (ROWS, HIDDEN)."""
    each = (ROWS * WIDTH + WIDTH * HIDDEN + ROWS * HIDDEN) * F32
    assert kernels(gated, operands, granularity=granularity) == [("dot_general", each)] * 4


def test_arithmetic_on_a_part_still_reads_the_part_alone():
    """A compiler's kernel absorbs the slice: a quarter of the rows is read, and written."""

    def doubled(x):
        return x[: ROWS // 2] * 2

    (found,) = kernels(doubled, lambda mesh: operands(mesh)[:1])
    assert found[1] == 2 * (ROWS // 2) * WIDTH * F32


def sharded(mesh):
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False, device="cuda") for _ in range(3)))
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), fused=True), operands(mesh)[0]


def train(model, optimizer, x):
    model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_kernels_of_fsdp_and_the_optimizer_move_what_they_move_in_eager_mode():
    """Their operands are views of flat buffers, and so is what they write.  Eager PyTorch copies
    none of them, which the capture that is not opened shows."""
    eager, opened = (kernels(train, sharded, (4,), fuse=fuse) for fuse in (False, True))
    whole = [[row for row in found if row[0].startswith(OUTSIDE)] for found in (eager, opened)]
    assert whole[0] == whole[1]
    assert len(whole[0]) >= 5
    moved = ("slice", "transpose", "dynamic_update_slice")
    assert not [op for op, _ in opened if op in moved]
