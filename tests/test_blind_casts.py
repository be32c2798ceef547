"""Casts to narrow types as torchao's kernels run them, against the times that it publishes."""

from __future__ import annotations

import functools
import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy"))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import predict
from narrow import _cast
from recipes import read_recipes
from scalings import DOWN, SCALINGS, WIDE

from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import NodeKind, Phase, WorkloadGraph, with_tables
from flint.graph.kinds import Source
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from tests.frontends.torch.in_child import record_in_child

#: torchao's benchmarks of its kernels for NVFP4 on a GB200
#: (``benchmarks/prototype/nvfp4_training/README.md`` at cb76f29): columns of 2,048 rows ->
#: microseconds.  Largest values, rounding to nearest and at random, weights in squares.
MEASURED = {14336: (31.744, 65.856, 91.168, 123.616), 28672: (46.048, 117.296, 166.624, 232.16)}
ROWS = 2048


def layer(width: int, out: int, rows: int = ROWS) -> WorkloadGraph:
    """A linear layer of (rows, width) and a weight (width, out): forward, and both gradients."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    x, w, g = (
        builder.input(tables.type(tensor_type(shape, "bf16")))
        for shape in ((rows, width), (width, out), (rows, out))
    )
    for phase, operands, (m, n, k) in (
        (Phase.FORWARD, (x, w), (rows, out, width)),
        (Phase.BACKWARD, (g, w), (rows, width, out)),
        (Phase.BACKWARD, (x, g), (width, out, rows)),
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


#: torchao's benchmark of linear layers with rowwise scaling, forward and backward, on an H100 (its
#: pull request 2185): rows, columns, columns of the result -> milliseconds in bf16 and in FP8.
LAYERS = {
    (16384, 8192, 1280): (1.954, 1.757),
    (16384, 1024, 8192): (1.701, 1.193),
    (16384, 8192, 7168): (9.871, 5.707),
    (16384, 3584, 8192): (5.192, 3.034),
}


def test_rowwise_casts_of_torchao_take_as_long_as_in_its_benchmark() -> None:
    """What the layers take longer than products at twice the speed.  The benchmark differentiates
    a sum (``bench_linear_float8.py``): its gradients are one number, so that no kernel reads them,
    and their casts write two times one byte."""
    accelerator, scaling = load_system("dgx-h100").accelerator, SCALINGS["torchao rowwise"]
    moved = 0.0
    for rows, width, out in LAYERS:
        moved += _cast(layer(width, out, rows), scaling, np.ones(3, bool)).sum()
        moved -= rows * out * (scaling.first + scaling.again - 2)
    rate = accelerator.memory_bandwidth * accelerator.kernel.memory_efficiency
    measured = sum(narrow - wide / 2 for wide, narrow in LAYERS.values())
    assert moved / rate * 1e3 == pytest.approx(measured, rel=0.1)


def test_kernels_that_go_down_wide_matrices_are_slower() -> None:
    """Reading 4,096 x 4,096 elements and writing their transpose takes 107.6 us where one kernel
    finds largest values, too; along the other dim it has 2.0 to 2.2 TB/s (an H100,
    pytorch/pytorch, issue 149982)."""
    assert pytest.approx(4 * 4096**2 / 107.6e-6 / 2.1e12, rel=0.1) == DOWN
    columns = WIDE * load_system("dgx-h100").accelerator.kernel.units
    scaling, more = SCALINGS["torchao rowwise"], 5 / DOWN - SCALINGS["torchao rowwise"].again
    for width, out, elements in (
        (16, columns - 64, 0),
        (16, columns, ROWS * columns),  # gradients
        (columns, 16, ROWS * columns + columns * 16),  # activations, weights
    ):
        graph = layer(width, out)
        narrow, wide = (
            _cast(graph, scaling, np.ones(3, bool), (), (ROWS,), each).sum()
            for each in (math.inf, columns)
        )
        assert wide - narrow == pytest.approx(more * elements)


def test_mxfp8_casts_of_torchao_take_as_long_as_it_published() -> None:
    """Gradients of 131,072 x 2,048 on a B200: 166.0 us along the rows, 191.7 us into the transpose
    (its ``prototype/moe_training/README.md``).  Along the rows by Triton; a compiled cast has 6.06
    where Triton has 5.97 TB/s (pull requests 4073 and 3560)."""
    kernel = load_system("dgx-b200").accelerator
    rate = kernel.memory_bandwidth * kernel.kernel.memory_efficiency
    moved = _cast(layer(16, 2048, 131072), SCALINGS["torchao mxfp8"], np.ones(3, bool))
    assert moved[1] / rate == pytest.approx(166.0e-6, rel=0.2)
    assert moved[2] / rate == pytest.approx(191.7e-6, rel=0.02)


def test_checkpointed_inputs_are_cast_again_by_eager_kernels() -> None:
    """``float8nocompile_linear.py``: an input is cast forward as it lies, in the backward pass into
    its transpose; without checkpointing into both at once.  A gradient is cast into both."""
    once, again = (
        _cast(layer(16, 32), SCALINGS[name], np.ones(3, bool), (), (ROWS,))
        for name in ("eager, kept", "eager")
    )
    assert again[0] == pytest.approx(ROWS * 16 * 5 + 16 * 32 * (2 + 3 / DOWN))
    assert once[0] - again[0] == pytest.approx(ROWS * 16 * (4 / DOWN - 3))
    assert again[2] == pytest.approx(ROWS * 16 * (2 + 3 / DOWN))
    assert once[1] == pytest.approx(ROWS * 32 * (2 + 4 / DOWN))
    assert once[2] == 0.0


@pytest.mark.thorough
@pytest.mark.parametrize(("columns", "kernels"), [(WIDE * 132 - 64, 3), (WIDE * 132, 1)])
def test_inductor_casts_wide_matrices_by_one_kernel(columns: int, kernels: int) -> None:
    """PyTorch's own compiler, for the 132 multiprocessors of an H100."""
    found = record_in_child(call, functools.partial(of_columns, columns), (1,), ("dp",), **H100)
    assert sum("inductor_kernel" in op.name for op in found.ops) == kernels


def of_columns(columns, mesh):
    import torch

    def cast(x):
        most = x.abs().amax(0, keepdim=True).float()
        return (x * (448.0 / most)).to(torch.float8_e4m3fn).t().contiguous()

    return torch.compile(cast), torch.empty(8192, columns, device="cuda", dtype=torch.bfloat16)


def call(function, *args):
    return function(*args)


H100 = {"compile_for": "h100-sxm"}


def test_nanochats_rows_have_the_casts_of_torchao(monkeypatch) -> None:
    """Its recipe names the library (dev/LOG.md of nanochat, 2 February 2026)."""
    made = []
    monkeypatch.setattr("torch_rows.narrow", lambda scaling, **_: made.append(scaling))
    predict.expressed(read_recipes(predict.HERE / "recipes.csv")["nanochat-d26-f8rw"])
    assert made == [SCALINGS["torchao rowwise"]]
