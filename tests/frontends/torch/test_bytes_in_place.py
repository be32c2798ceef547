"""What ops in place move: the rows that they touch, and not the table that the rows are in.

The table is 1,000 rows of 64 float32 (256 bytes each), of which 8 are touched, found by 8 int64
(64 bytes), also where PyTorch's signature wants one for each element and they are expanded.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import flint  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch-bytes-in-place")

ROW, TOUCHED = 64 * 4, 8
ROWS, WHERE = TOUCHED * ROW, TOUCHED * 8


def setup(mesh):
    device = mesh.device_type
    table = torch.zeros(1000, 64, device=device)
    return table, torch.ones(8, 64, device=device), torch.arange(8, device=device)


def put(table, rows, where):
    table[where] = rows


def accumulate(table, rows, where):
    table.index_put_((where,), rows, accumulate=True)


def add(table, rows, where):
    table.index_add_(0, where, rows)


def copy(table, rows, where):
    table.index_copy_(0, where, rows)


def scatter(table, rows, where):
    table.scatter_(0, where[:, None].expand(8, 64), rows)


def scatter_add(table, rows, where):
    table.scatter_add_(0, where[:, None].expand(8, 64), rows)


def elsewhere(table, rows, where):
    return table.index_add(0, where, rows)


def all_of_it(table, rows, where):
    table.add_(1.0)


def moved(step):
    workload = flint.capture(step, mesh=(1,), axes=("dp",), setup=setup).capture()
    [node] = [node for node in workload.programs[0].graph if node.op.startswith("aten.")]
    return node.work.read, node.work.written, node.work.aliased


TABLE = 1000 * ROW


@pytest.mark.parametrize("step", [put, copy, scatter])
def test_rows_that_are_replaced(step):
    """The new rows and their places are read; the old ones may be."""
    read, written, aliased = moved(step)
    assert ROWS + WHERE <= read <= 2 * ROWS + WHERE
    assert (written, aliased) == (ROWS, TABLE - ROWS)


@pytest.mark.parametrize("step", [accumulate, add, scatter_add])
def test_rows_that_are_added_to(step):
    """The old rows are read, too."""
    assert moved(step) == (2 * ROWS + WHERE, ROWS, TABLE - ROWS)


def test_a_result_elsewhere_is_a_copy_of_the_table():
    assert moved(elsewhere) == (TABLE + ROWS + WHERE, TABLE, 0)


def test_elements_that_all_change_are_all_moved():
    assert moved(all_of_it) == (TABLE, TABLE, 0)
