"""Two steps beside each other, program by program."""

from __future__ import annotations

import json

import jax
import pytest

from flint.workload.differences import differences
from tests.frontends.jax import sequence_steps
from tests.frontends.jax.sequence_steps import captured, gradient, momentum
from tests.support.command_line import flint_here

RANKS = 8
#: Elements of the weights, of the rows of the momentum on one rank, and of x on one rank.
WHOLE, ROWS, BATCH = 512 * 256, 512 * 256 // 4, 16


def in_another_order(w, m, x):
    w, m = momentum(w, m, w)
    return gradient(w, x), m


def as_one(w, m, x):
    value, g = gradient(w, x)
    w, m = momentum(w, m, g)
    return value, w, m


@pytest.fixture(scope="module")
def workloads():
    return {
        "zero1": sequence_steps.zero1.capture(options={"reduce_scatter": False}),
        "reversed": captured(in_another_order).capture(options={"reduce_scatter": False}),
        "one": captured(jax.jit(as_one)).capture(),
    }


def test_each_program_has_its_own_totals(workloads):
    """Two products of 16 x 512 by 512 x 256 in the gradient, which is reduced whole.

    The update multiplies and adds its part of the momentum: 2 FLOPs an element; it subtracts
    either its rows or, where the compiler gathers them first, all of it.
    """
    found = differences(workloads["zero1"], workloads["zero1"])
    rows = {row.name: row for row in found.programs}
    assert list(rows) == ["gradient", "momentum"]
    first, second = rows["gradient"].before, rows["momentum"].before
    assert (first.ranks, second.ranks) == (RANKS, RANKS)
    products = 2 * 2 * BATCH * 512 * 256
    assert products <= first.flops / RANKS < 1.1 * products
    assert second.flops / RANKS in (3 * ROWS, 2 * ROWS + WHOLE)
    assert first.operand_bytes / RANKS == 4 * WHOLE + 4  # and the loss
    assert sum(side.flops for side in (first, second)) == found.before.flops
    assert rows["gradient"].after == first


def test_programs_in_another_order_and_programs_that_one_side_has(workloads, tmp_path):
    found = differences(workloads["zero1"], workloads["reversed"])
    assert [row.name for row in found.programs] == ["momentum", "gradient"]
    assert found.moved == {"gradient", "momentum"}
    found = differences(workloads["zero1"], workloads["one"])
    assert [(row.name, row.before is None, row.after is None) for row in found.programs] == [
        ("gradient", False, True),
        ("main", True, False),
        ("momentum", False, True),
    ]
    assert not found.moved
    for name in ("zero1", "one"):
        workloads[name].save_programs(tmp_path / name)
    shown = flint_here("diff", "zero1", "one", cwd=tmp_path).stdout
    assert [line.split()[-1] for line in shown.splitlines() if "momentum" in line] == ["removed"]
    found = flint_here("diff", "--json", "zero1", "one", cwd=tmp_path).stdout
    assert json.loads(found)["programs"][1]["name"] == "main"


def test_two_programs_alone_have_no_such_table(workloads):
    assert differences(workloads["one"], workloads["one"]).programs == ()
