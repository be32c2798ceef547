"""Attention with dropout in a program of one device, against a profile of an H100.

``bert`` in benchmarks/accuracy/single_gpu/measured.csv (torch 2.11, cuDNN's attention, f16, a mask
and dropout of 0.1): 12.84 ms of attention kernels in 24 layers, forward and backward.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from flint.graph.tensor_types import tensor_type
from flint.graph.work import Unit, Work, WorkItem
from tests.cost.test_library_kernels import ALONE, H100, microseconds, node

TABLE = Path(__file__).parents[2] / "benchmarks/accuracy/single_gpu/measured.csv"
LAYERS = 24
#: Batch times heads, positions, positions, size of a head.
SIZES = (32 * 16, 384, 384, 64)
NUMBERS = 32 * 16 * 384 * 384


def attention(backward, numbers, system=ALONE):
    """Microseconds of a kernel: two products, or five, which draw numbers for dropout."""
    data = tensor_type((32, 16, 384, 64), "f16")
    product = 2 * NUMBERS * 64
    items = [WorkItem(Unit.MATMUL, "f16", product, SIZES)] * (5 if backward else 2)
    drawn = WorkItem(Unit.TRANSCENDENTAL, "ui32", numbers * (2 if backward else 1), None)
    moved = (7 if backward else 4) * data.bytes
    work = Work((*items, drawn), moved, 0)
    name = "aten._scaled_dot_product_cudnn_attention" + "_backward" * backward
    return microseconds(node(f"{name}.default", "", [data] * 3, [data], work), system)


def layers(numbers):
    return LAYERS * sum(attention(backward, numbers) for backward in (False, True)) * 1e-6


def test_drawing_numbers_explains_most_of_what_a_profile_has() -> None:
    [row] = [row for row in csv.DictReader(TABLE.open()) if row["id"] == "bert"]
    _, measured, _ = json.loads(row["classes"])["attention"]
    assert layers(NUMBERS) == pytest.approx(measured, rel=0.2)
    assert layers(0) < 0.55 * measured


@pytest.mark.parametrize("backward", [False, True])
def test_each_score_costs_36_operations_on_integers_once(backward) -> None:
    """Philox4x32-10: 15 instructions for a number, and three; at 16.75 instructions per ps."""
    more = attention(backward, NUMBERS) - attention(backward, 0)
    assert more == pytest.approx(NUMBERS * 18 / 16.75e6, rel=0.03)


def test_in_a_step_of_many_devices_they_are_free() -> None:
    assert attention(False, NUMBERS, H100) == attention(False, 0, H100)
