"""A fused network of experts: which kernels Transformer Engine has in its products' epilogues."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

from fused_network import made_within, within_products  # noqa: E402

import flint  # noqa: E402
from flint.cost.kernels import kernel_seconds  # noqa: E402
from flint.cost.systems import load_system  # noqa: E402
from flint.passes import apply  # noqa: E402

ROWS, EXPERTS, WIDE, HIDDEN = 4096, 4, 256, 512
SYSTEM = load_system("gb300-nvl72")


def made(mesh):
    def values(*shape):
        device = mesh.device_type
        return torch.randn(*shape, device=device, dtype=torch.bfloat16).requires_grad_()

    ends = torch.arange(1, 1 + EXPERTS, device=mesh.device_type, dtype=torch.int32)
    weights = values(EXPERTS, WIDE, HIDDEN), values(EXPERTS, WIDE, HIDDEN)
    return values(ROWS, WIDE), *weights, values(EXPERTS, HIDDEN, WIDE), ends * (ROWS // EXPERTS)


def step(rows, gate, up, down, ends):
    gated, raised = (torch._grouped_mm(rows, each, offs=ends) for each in (gate, up))
    hidden = torch.nn.functional.silu(gated) * raised
    torch._grouped_mm(hidden, down, offs=ends).float().pow(2).sum().backward()


@pytest.fixture(scope="module")
def graph():
    capture = flint.capture(mesh=(1,), axes=("dp",), setup=made)(step)
    return apply(capture.capture(options={"fuse": True}).graph, "kernel")


def test_epilogues_write_what_the_next_product_reads(graph) -> None:
    """Its ``forward_grouped_mlp.py`` and ``backward_grouped_mlp.py`` give products three values in
    f8: what is gated, and the gradients of gate and up."""
    read = {v for node in products(graph) for v in graph.operands_of(node).tolist()}
    written = sorted(made_within(graph) & read)
    assert [graph.type_of(value).shape for value in written] == [(ROWS, HIDDEN)] * 3


def products(graph):
    return [node for node in range(len(graph)) if "ragged" in graph[node].op]


def test_nine_products_and_what_they_move_are_all_that_takes_time(graph) -> None:
    """Three products, each with two gradients.  That of ``down``'s rows, the fifth, also reads gate
    and up (and here the gate's activation, as this step keeps it) and writes their gradients."""
    alone = kernel_seconds(graph, SYSTEM)
    fused = within_products(kernel_seconds)(graph, SYSTEM)
    took = products(graph)
    rows = [n for n in range(len(graph)) if n not in took and _over_rows(graph, n) and alone[n]]
    assert len(took) == 9 and rows
    assert not fused[rows].any()
    rate = SYSTEM.accelerator.memory_bandwidth * SYSTEM.accelerator.kernel.memory_efficiency
    each, matrices = 2 * ROWS * HIDDEN, 2 * EXPERTS * WIDE * HIDDEN
    own = 2 * ROWS * WIDE + matrices + 4 * EXPERTS + each
    assert max(fused[took]) == pytest.approx((own + 5 * each) / rate, rel=1e-3)
    assert np.flatnonzero(fused > alone).tolist() == [took[4]]


def _over_rows(graph, node):
    """Whether a kernel reads a matrix of the experts' rows and writes another."""
    shapes = [graph.type_of(value).shape for value in graph.operands_of(node).tolist()]
    return (ROWS, HIDDEN) in shapes
