"""Casts to narrow types as torchao's kernels run them, against the times that it publishes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy"))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

from narrow import SCALINGS, _cast

from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import NodeKind, Phase, WorkloadGraph, with_tables
from flint.graph.kinds import Source
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem

#: torchao's benchmarks of its kernels for NVFP4 on a GB200
#: (``benchmarks/prototype/nvfp4_training/README.md`` at cb76f29): columns of 2,048 rows ->
#: microseconds.  Largest values, rounding to nearest and at random, weights in squares.
MEASURED = {14336: (31.744, 65.856, 91.168, 123.616), 28672: (46.048, 117.296, 166.624, 232.16)}
ROWS = 2048


def layer(width: int, out: int) -> WorkloadGraph:
    """A linear layer of (ROWS, width) and a weight (width, out): forward, and both gradients."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    x, w, g = (
        builder.input(tables.type(tensor_type(shape, "bf16")))
        for shape in ((ROWS, width), (width, out), (ROWS, out))
    )
    for phase, operands, (m, n, k) in (
        (Phase.FORWARD, (x, w), (ROWS, out, width)),
        (Phase.BACKWARD, (g, w), (ROWS, width, out)),
        (Phase.BACKWARD, (x, g), (width, out, ROWS)),
    ):
        item = WorkItem(Unit.MATMUL, "bf16", 2.0 * m * n * k, (1, m, n, k))
        builder.node(
            NodeKind.COMPUTE, tables.op("dot_general"), operands,
            [tables.type(tensor_type((m, n), "bf16"))], role=Role.CONTRACTION,
            work=Work((item,), 0, 0), source=tables.source(Source(phase=phase)),
        )  # fmt: skip
    return with_tables(builder.finish(()), tables.finish())


def casts(width: int, out: int, *, weights: bool) -> list[float]:
    """Microseconds of the casts of each product of a layer, of weights only where asked."""
    kernel = load_system("gb200-nvl72").accelerator
    there = () if weights else (ROWS,)
    moved = _cast(layer(width, out), SCALINGS["torchao nvfp4"], np.ones(3, bool), there, (ROWS,))
    rate = kernel.memory_bandwidth * kernel.kernel.memory_efficiency
    return [each / rate * 1e6 for each in moved.tolist()]


def test_nvfp4_casts_of_torchao_take_as_long_as_it_published() -> None:
    """What twice as many columns take longer: one cast for both dims of activations, in the forward
    pass, of gradients and of weights; for the weights' largest value, a read of them."""
    most, nearest, random, squares = np.subtract(*reversed(MEASURED.values()))
    some, more = (casts(width, 1, weights=False) for width in MEASURED)
    assert more[0] - some[0] == pytest.approx(most + nearest, rel=0.01)
    some, more = (casts(1, out, weights=False) for out in MEASURED)
    assert more[1] - some[1] == pytest.approx(most + random, rel=0.01)
    assert some[2] == 0.0
    both, none = (casts(14336, ROWS, weights=each) for each in (True, False))
    read = 2 * 14336 * ROWS / 5.92e6
    assert both[0] - none[0] == pytest.approx(squares + read, rel=0.01)
