"""PyTorch's kernels of rows against what they took alone on an H100 (torch 2.11, kernels.csv)."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import fmean

import pytest

from flint.cost.row_kernels import (
    AGAIN,
    PRODUCT_FIRST,
    REGISTERS,
    ROW_GRADIENT,
    ROW_KERNELS,
    SHARED,
    TABLE_GRADIENT,
)
from flint.graph.tensor_types import tensor_type
from tests.cost.test_library_kernels import ALONE, H100, microseconds, node

TABLE = Path(__file__).parents[2] / "benchmarks/accuracy/single_gpu/kernels.csv"


def softmax(rows, gradient=False):
    """The forward kernel by the length of its rows, or the gradient of a log-softmax."""
    hero = REGISTERS if rows.shape[-1] <= 1024 else SHARED if rows.shape[-1] < 24_000 else AGAIN
    if gradient:
        return node("aten._log_softmax_backward_data.default", hero, [rows, rows], [rows])
    return node("aten._softmax.default", hero, [rows], [rows])


def layer_norm(rows, gradient=False):
    weight = tensor_type(rows.shape[1:], rows.dtype)
    if gradient:
        name = "aten.native_layer_norm_backward.default"
        return node(name, ROW_GRADIENT, [rows, rows, weight, weight], [rows, weight, weight])
    return node("aten.native_layer_norm.default", AGAIN, [rows, weight, weight], [rows])


def table_gradient(table, tokens):
    made = tensor_type((*tokens, table.shape[1]), table.dtype)
    given = [made, tensor_type(tokens, "i64")]
    return node("aten.embedding_dense_backward.default", TABLE_GRADIENT, given, [table])


def modelled(row):
    """Microseconds of what a row of the table measured."""
    shapes = [tuple(map(int, text.split("x"))) for text in row["shapes"].split()]
    rows = tensor_type(shapes[0], row["type"])
    op, _, gradient = row["op"].partition(" ")
    if op == "embedding":
        return microseconds(table_gradient(rows, shapes[1]), ALONE)
    if op == "layer_norm":
        return microseconds(layer_norm(rows, bool(gradient)), ALONE)
    found = microseconds(softmax(rows, bool(gradient)), ALONE)
    # The gradient of the loss's choice of a word is written, most of it as zeros.
    chosen = node("aten.nll_loss_backward.default", "", [], [rows])
    return found + (microseconds(chosen, ALONE) if gradient else 0)


OPS = ("softmax", "layer_norm", "layer_norm backward", "cross_entropy", "cross_entropy backward",
       "embedding backward")  # fmt: skip
ROWS = [
    row for row in csv.DictReader(TABLE.open()) if row["op"] in OPS and float(row["seconds"]) > 1e-5
]


@pytest.mark.parametrize("op", OPS)
def test_kernels_of_rows_take_what_was_measured_on_an_h100(op) -> None:
    rows = [row for row in ROWS if row["op"] == op]
    ratios = [modelled(row) / float(row["seconds"]) / 1e6 for row in rows]
    assert len(ratios) >= 2
    assert all(0.65 < ratio < 1.35 for ratio in ratios), ratios
    assert 0.87 < fmean(ratios) < 1.13


def test_their_bytes_alone_would_take_less_than_eight_tenths() -> None:
    plain = {
        "softmax": lambda rows: node("aten.any.default", "", [rows], [rows]),
        "layer_norm": lambda rows: node("aten.any.default", "", [rows], [rows]),
    }
    ratios = [
        microseconds(plain[row["op"]](rows), ALONE) / float(row["seconds"]) / 1e6
        for row in ROWS
        if row["op"] in plain
        for rows in [tensor_type(tuple(map(int, row["shapes"].split("x"))), row["type"])]
    ]
    assert fmean(ratios) < 0.8


@pytest.mark.parametrize("hero", sorted({*ROW_KERNELS} - {ROW_GRADIENT}))
def test_in_a_step_of_many_devices_their_bytes_count(hero) -> None:
    rows, indices = tensor_type((8192, 4096), "bf16"), tensor_type((8192,), "i64")
    operands = [rows, indices] if hero == TABLE_GRADIENT else [rows, rows]
    kernel, plain = (node("aten.any.default", one, operands, [rows]) for one in (hero, ""))
    assert microseconds(kernel, H100) == microseconds(plain, H100)
    assert microseconds(kernel, ALONE) > microseconds(plain, ALONE)


def test_the_gradient_of_a_softmax_is_two_kernels() -> None:
    """A product of 3 x 32 MiB, then rows: as much if they are short, their first operand again if
    they are long; at 0.9 of 3.35 TB/s, and 1.9 us for each kernel."""
    for shape, again in (((16384, 1024), 0), ((8192, 2048), 1)):
        rows = tensor_type(shape, "bf16")
        graph = node("aten.any.default", PRODUCT_FIRST, [rows, rows], [rows])
        moved = (6 + again) * rows.bytes
        assert microseconds(graph, ALONE) == pytest.approx(moved / (0.9 * 3.35e6) + 3.8, rel=1e-3)
