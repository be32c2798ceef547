"""cuDNN's attention in a program of one device, against kernels alone on an H100.

benchmarks/accuracy/single_gpu/kernels.csv: PyTorch 2.11's attention with cuDNN, bf16, medians of 20
rounds; of gradients, which other processes disturbed most, the fastest. The shares are published.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from flint.cost.attention_alone import _products, stretch
from flint.cost.systems import load_system

TABLE = Path(__file__).parents[2] / "benchmarks/accuracy/single_gpu/kernels.csv"
PEAK = 989.4e12


def measured() -> list[tuple[str, tuple[int, ...], float]]:
    with TABLE.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["op"].startswith("attention")]
    shaped = [(row, tuple(map(int, row["shapes"].split("x")))) for row in rows]
    # In the smallest one launches are longer than products.
    return [
        (row["op"], shape, float(row["min" if "backward" in row["op"] else "seconds"]))
        for row, shape in shaped
        if shape[1] != 6
    ]


def modelled(op: str, shape: tuple[int, ...]) -> float:
    batch, heads, length, size = shape
    backward = "backward" in op
    model = load_system("dgx-h100").accelerator.kernel
    dims = (batch * heads, length, length, size)
    flops = 2 * batch * heads * length * length * size * (5 if backward else 2)
    return flops / PEAK * stretch(dims, "causal" in op, backward, model)


@pytest.mark.parametrize(("op", "shape", "seconds"), measured())
def test_kernels_alone_take_what_published_shares_say(op, shape, seconds) -> None:
    """cuDNN's gradients of long sequences are faster than those of the paper, a year older."""
    assert modelled(op, shape) == pytest.approx(seconds, rel=0.25)


def test_the_median_kernel_is_within_a_tenth() -> None:
    errors = [modelled(op, shape) / seconds - 1 for op, shape, seconds in measured()]
    assert len(errors) == 28
    assert abs(np.median(errors)) < 0.05 and np.median(np.abs(errors)) < 0.08


@pytest.mark.parametrize(("size", "length", "share"), [(64, 16384, 413), (128, 2048, 617)])
def test_stated_shares_are_kept(size, length, share) -> None:
    model = load_system("dgx-h100").accelerator.kernel
    found = 1 / stretch((8, length, length, size), False, False, model)
    assert found * PEAK == pytest.approx(share * 1e12, rel=0.002)


def test_narrow_heads_are_slower_and_wide_ones_no_faster_than_the_widest_stated() -> None:
    model = load_system("dgx-h100").accelerator.kernel
    shares = [1 / stretch((8, 4096, 4096, size), False, True, model) for size in (32, 64, 96, 128)]
    assert shares == sorted(shares)
    wide = 1 / stretch((8, 4096, 4096, 256), False, True, model)
    assert wide == pytest.approx(shares[-1])


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize(
    ("heads", "flops", "products"),
    [
        ([64, 64], [2, 3], [2, 3]),  # PyTorch's: scores and gradients by their sizes
        ([320], [5], [1]),  # cuDNN in JAX: all in one
        ([192, 128], [3, 2], [1, 1]),  # Transformer Engine in JAX
    ],
)
def test_gradients_stand_for_five_products(share, heads, flops, products) -> None:
    node = np.zeros(len(heads), dtype=np.int64)
    found = _products(node, np.array(heads, float), share * np.array(flops), np.array([True]))
    assert found.tolist() == pytest.approx(products)
