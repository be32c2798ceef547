"""Measured durations: they take the model's place where they fit, and are checked line by line."""

from __future__ import annotations

import numpy as np
import pytest

from flint.cost.kernels import kernel_seconds
from flint.cost.measured import read_measured
from flint.cost.simplified import without
from flint.cost.systems import load_system
from flint.errors import UsageError
from flint.mesh.mesh import Mesh
from tests.cost.test_kernels import product
from tests.simulation.test_simulate import overlapped

H100 = load_system("dgx-h100")


def table(tmp_path, text: str):
    path = tmp_path / "kernels.csv"
    path.write_text(text)
    return path


def test_what_is_measured_is_taken_and_the_rest_modelled(tmp_path):
    measured = read_measured(
        table(tmp_path, "op,result,seconds\ndot_general,1x64x64xbf16,0.5\nadd,4xf32,1\n")
    )
    assert measured(product(1, 64, 64, 8), H100).tolist() == [0.5]
    other = product(1, 64, 32, 8)
    assert np.array_equal(measured(other, H100), kernel_seconds(other, H100))
    assert measured.notes() == [
        "1 of 2 measured durations are used, all other kernels are modelled"
    ]


def test_a_step_with_measured_kernels(tmp_path):
    workload = overlapped(Mesh((8, 8), ("data", "model")), "model", 3)
    path = table(tmp_path, "op,result,seconds\ndot_general,4096x4096xbf16,0.25\n")
    result = workload.simulate(without(load_system("dgx-h100"), ("contention",)), kernels=path)
    assert result.step_seconds == 1.0  # four products, the gather behind them
    assert result.notes[-1].startswith("1 of 1 measured durations are used")


def test_any_function_can_estimate():
    workload = overlapped(Mesh((8, 8), ("data", "model")), "model", 1)
    system = without(load_system("dgx-h100"), ("contention",))
    result = workload.simulate(system, kernels=lambda graph, system: np.full(len(graph), 2.0))
    assert result.compute_seconds == 4.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the first line must be op,result,seconds"),
        ("op,seconds\nadd,1\n", "the first line must be op,result,seconds"),
        ("op,result,seconds\nadd,1\n", ":2: expected op,result,seconds"),
        ("op,result,seconds\nadd,4xf32,fast\n", ":2: expected op,result,seconds"),
        ("op,result,seconds\nadd,4xf32,-1\n", ":2: seconds must be at least 0, not -1"),
        ("op,result,seconds\nadd,4xf32,nan\n", ":2: seconds must be at least 0, not nan"),
        ("op,result,seconds\na,b,1\na,b,2\n", ":3: a b has two durations"),
    ],
)
def test_faulty_tables_name_the_line(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        read_measured(table(tmp_path, text))


def test_a_missing_table_is_one_line(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_measured(tmp_path / "none.csv")
