"""Attention and grouped products on TPU v7x, next to times that Google's kernels took there."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

import pytest

from flint.cost.kernels import kernel_seconds
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem

TOKAMAX = Path(__file__).parents[1] / "data/tokamax"
#: JAX's devices in a chip; the times are of one.
DEVICES = 2
V7X = load_system("tpu-v7x-pod")


def rows_of(name):
    with (TOKAMAX / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def milliseconds(op, items, types, result):
    """Of one op whose time is that of its products."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    values = [builder.input(tables.type(tensor_type(shape, "bf16"))) for shape in types]
    work = tuple(WorkItem(Unit.MATMUL, "bf16", flops, dims) for flops, dims in items)
    builder.compute(op, Role.OPAQUE, values, (tensor_type(result, "bf16"),), Work(work, 0, 0))
    graph = builder.finish(())
    found = kernel_seconds(with_tables(graph, tables.finish()), V7X)
    return 1e3 * float(found[0])


def attention(row):
    """Milliseconds forward and backward: two and five products, one of them again."""
    names = ["batch", "positions", "heads", "head", "values"]
    batch, length, heads, head, values = (int(row[name]) for name in names)
    count = DEVICES * batch * heads  # of both halves of a chip
    seen = (length + 1) / (2 * length) if row["causal"] == "1" else 1
    scores = [(count, length, length, size) for size in (head, values)]
    sums = [(count, length, size, length) for size in (values, head, head)]

    def time(dims):
        items = [(int(2 * seen * b * m * n * k), (b, m, n, k)) for b, m, n, k in dims]
        return milliseconds("attention", items, [(1,)], (1,))

    return time([scores[0], sums[0]]), time([*scores, *sums])


def test_attention_on_v7x_takes_what_kernels_of_64_and_128_took():
    """From 4,096 positions; others are in the following tests."""
    errors = []
    for row in rows_of("attention"):
        forward, backward = attention(row)
        measured = float(row["forward_ms"]), float(row["backward_ms"])
        error = (forward + backward) / sum(measured) - 1
        if row["head"] in ("64", "128") and int(row["positions"]) >= 4096:
            errors.append(error)
            assert forward == pytest.approx(measured[0], rel=0.15), row
            assert backward == pytest.approx(measured[1], rel=0.15), row
    assert len(errors) == 13
    assert abs(statistics.median(errors)) < 0.05


def test_attention_on_v7x_is_not_far_off_for_other_heads():
    for row in rows_of("attention"):
        if int(row["positions"]) >= 4096:
            found, measured = (
                sum(attention(row)),
                float(row["forward_ms"]) + float(row["backward_ms"]),
            )
            assert found == pytest.approx(measured, rel=0.3), row


def test_as_many_heads_take_as_long_whatever_their_size():
    """32 of 64 and of 128, in the model; measured for 16,384 positions: 7.0 ms against 2 x 3.6."""
    rows = {
        (row["head"], row["heads"]): row
        for row in rows_of("attention")
        if row["positions"] == "16384" and row["causal"] == "1"
    }
    narrow, wide = attention(rows["64", "32"]), attention(rows["128", "16"])
    assert narrow == pytest.approx([2 * each for each in wide], rel=0.01)


def grouped(row):
    """Milliseconds of a ragged product on all devices of a chip."""
    kind = row["kind"]
    names = ["rows", "sum", "columns", "groups"]
    rows, k, n, groups = (int(row[name]) for name in names)
    if kind == "drhs":
        dims, types, result = (1, k, n, rows), [(rows, k), (rows, n)], (groups, k, n)
    else:
        if kind == "dlhs":
            k, n = n, k
        dims, types, result = (1, rows, n, k), [(rows, k), (groups, k, n)], (rows, n)
    items = [(2 * rows * k * n, dims)]
    return milliseconds("chlo.ragged_dot", items, types, result) * DEVICES


def test_grouped_products_take_what_kernels_took():
    errors = [grouped(row) / float(row["ms"]) - 1 for row in rows_of("ragged")]
    assert len(errors) == 72
    assert abs(statistics.median(errors)) < 0.05
    assert statistics.quantiles(map(abs, errors), n=10)[-1] < 0.4


def test_matrices_whose_sides_are_no_multiple_of_lanes_take_nearly_twice_as_long():
    """2880 x 2880: 15.6 to 16.6 ms on v7x, where 5.4 TFLOP at the others' rate are 8."""
    found = [row for row in rows_of("ragged") if row["sum"] == "2880"]
    assert [row["kind"] for row in found] == ["dlhs", "drhs", "fwd"]
    for row in found:
        assert grouped(row) == pytest.approx(float(row["ms"]), rel=0.15)


@pytest.mark.parametrize(("width", "bound"), [(128, "indices"), (65536, "bytes")])
def test_a_gather_takes_a_time_for_each_index_of_short_rows(width, bound):
    """11 ns on v6e: vllm-project/tpu-inference, pull request 3476; long rows take their bytes."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    rows, at = tensor_type((4096, width), "bf16"), tensor_type((8192, 1), "i32")
    made = tensor_type((8192, width), "bf16")
    values = [builder.input(tables.type(kind)) for kind in (rows, at)]
    work = Work((), made.bytes + at.bytes, made.bytes)
    builder.compute("gather", Role.MOVEMENT, values, (made,), work)
    system = load_system("tpu-v6e-pod")
    accelerator = system.accelerator
    found = kernel_seconds(with_tables(builder.finish(()), tables.finish()), system)[0]
    bandwidth = accelerator.memory_bandwidth * accelerator.kernel.memory_efficiency
    expected = {"indices": 8192 * 11e-9, "bytes": (2 * made.bytes + at.bytes) / bandwidth}[bound]
    assert found == pytest.approx(expected, rel=0.02)
