"""Parameters of ops in the graph's table: which dims they contract, reduce, pad, transpose."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

import flint
from flint.graph.interning import TableBuilder
from flint.stablehlo.rules.forms import DIRECTIONS
from flint.workload.inspection import summarise
from tests.passes.xla.kernels.programs import of


def forms(function, *arguments):
    graph = flint.capture(mesh=(1,))(function).capture(*arguments).graph
    entries = list(graph.tables.entries())
    return [(entries[op][0], entries[op][2]) for op in graph.op.tolist()]


def test_products_of_square_matrices_contract_what_was_written() -> None:
    square = of(256, 256)
    assert forms(lambda a, b: a @ b, square, square) == [("dot_general", (1, 0))]
    assert forms(lambda a, b: a @ b.T, square, square)[-1] == ("dot_general", (1, 0))
    found = forms(lambda a, b: jnp.einsum("km,kn->mn", a, b), square, square)
    assert ("dot_general", (0, 0)) in found


def test_padding_of_a_convolution() -> None:
    """SAME with stride 2 of 56 places and 3 taps: none before, one behind."""

    def step(x, w):
        return lax.conv_general_dilated(
            x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    found = forms(step, of(2, 56, 56, 8), of(3, 3, 8, 16))
    assert found == [("convolution", (3, 2, 3, 0, 1, 0, 1))]


def test_other_parameters() -> None:
    x = of(16, 32)
    assert ("reduce", (0, -1, 16, 32)) in forms(lambda x: x.sum(0), x)
    assert ("reduce", (0, 1, -1, 16, 32)) in forms(lambda x: x.sum(), x)
    assert ("reduce", (1, -1, 16, 4, 8)) in forms(lambda x: x.reshape(16, 4, 8).sum(1), x)
    assert ("slice", (4, 0, 12, 32, 2, 1)) in forms(lambda x: x[4:12:2] * 2, x)
    assert ("concatenate", (1,)) in forms(lambda x: jnp.concatenate([x, x + 1], 1), x)
    assert ("compare", (DIRECTIONS.index("GT"),)) in forms(lambda x: x > 0, x)


def test_entries_with_other_parameters_are_other_entries() -> None:
    tables = TableBuilder()
    one, other = tables.op("transpose", form=(1, 0)), tables.op("transpose", form=(0, 1))
    assert one != other and tables.op("transpose", form=(1, 0)) == one
    assert TableBuilder(tables.finish()).op("transpose", form=(0, 1)) == other


def test_ops_with_other_parameters_are_one_row_of_a_summary() -> None:
    def step(x):
        return jnp.transpose(x, (1, 0, 2)) @ jnp.ones((4, 4)), jnp.transpose(x, (2, 1, 0)) + 1

    summary = summarise(flint.capture(mesh=(1,))(step).capture(of(8, 16, 4, dtype=jnp.float32)))
    rows = [row for row in summary.programs[0].ops if row.op == "transpose"]
    assert len(rows) == 1 and rows[0].count == 2


def test_saved_captures_keep_them(tmp_path) -> None:
    workload = flint.capture(mesh=(1,))(lambda a, b: a @ b).capture(of(8, 8), of(8, 8))
    path = tmp_path / "step.flint"
    workload.save(path)
    assert flint.load(path).graph.tables.forms == workload.graph.tables.forms
