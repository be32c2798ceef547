"""The systolic array against SCALE-Sim's own results, and by hand."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.cost.estimators import estimator
from flint.cost.hardware import DATAFLOWS, Scratchpads, SystolicArray
from flint.cost.kernels import kernel_seconds
from flint.cost.systems import load_system
from flint.cost.systolic import (
    compute_cycles,
    product_seconds,
    systolic_seconds,
    traffic_elements,
)
from flint.errors import UsageError
from tests.cost.test_kernels import product

CYCLES = Path(__file__).parents[1] / "data/scale_sim/cycles.csv"
ONE_BYTE = np.ones(1)


def runs():
    """SCALE-Sim's runs: the array at one cycle per second, the product, all cycles, the stalls."""
    with CYCLES.open() as file:
        for row in csv.DictReader(file):
            limited = row["mode"] == "USER"
            number = {name: int(row[name]) for name in row if name not in ("dataflow", "mode")}
            sizes = [1024 * number[f"{name}_kb"] for name in ("ifmap", "filter", "ofmap")]
            memory = Scratchpads(*sizes, float(number["bandwidth"]))
            array = SystolicArray(
                number["rows"], number["cols"], 1, 1.0, row["dataflow"], memory if limited else None
            )
            sizes = np.array([[1.0, number["m"], number["n"], number["k"]]])
            yield limited, array, sizes, number["cycles"], number["stalls"]


def test_cycles_without_stalls_are_scale_sims_exactly():
    compared = 0
    for _, array, sizes, cycles, stalls in runs():
        assert compute_cycles(sizes, array)[0] == cycles - stalls
        compared += 1
    assert compared > 150


def test_operands_that_fit_never_stall():
    """Both operands in half of their SRAM, outputs in theirs: no stall there, none here."""
    compared = 0
    for limited, array, sizes, cycles, stalls in runs():
        if not limited or array.dataflow != "os":
            continue
        (_, m, n, k), memory = sizes[0], array.memory
        if 2 * m * k <= memory.ifmap and 2 * k * n <= memory.filter and m * n <= memory.ofmap:
            assert stalls == 0
            assert product_seconds(sizes, ONE_BYTE, array)[0] == cycles
            compared += 1
    assert compared > 20


def streamed(array: SystolicArray, sizes) -> bool:
    """Whether every operand fits half of its SRAM or is larger than the whole.

    Between the two SCALE-Sim charges a whole half for each advance of the few lines that do not
    fit, which no memory does.
    """
    _, m, n, k = sizes[0]
    assert array.memory is not None
    pairs = ((m * k, array.memory.ifmap), (k * n, array.memory.filter))
    return all(size <= sram / 2 or size >= sram for size, sram in pairs)


def test_time_that_memory_limits_is_near_scale_sims():
    """Weight and input stationary; SCALE-Sim's output-stationary reads go round the whole operand
    for each fold's last lines."""
    errors = [
        product_seconds(sizes, ONE_BYTE, array)[0] / cycles - 1
        for limited, array, sizes, cycles, stalls in runs()
        if limited and stalls and array.dataflow != "os" and streamed(array, sizes)
    ]
    assert len(errors) >= 30
    assert np.median(np.abs(errors)) < 0.03
    assert np.quantile(np.abs(errors), 0.9) < 0.15
    assert max(errors) < 0.02  # where it differs, SCALE-Sim reads more


def test_an_operand_larger_than_half_its_sram_is_read_for_each_fold():
    """Weight stationary, 8 x 8: m k = 1,600 inputs for ceil(24 / 8) column folds, weights once,
    partial sums for ceil(40 / 8) row folds."""
    array = SystolicArray(8, 8, 1, 1.0, "ws")
    small, large = (Scratchpads(size, 1 << 20, 1 << 20, 1.0) for size in (3198, 3200))
    sizes = np.array([[1.0, 40, 24, 40]])
    assert traffic_elements(sizes, ONE_BYTE, array, small).tolist() == [[4800, 960, 4800]]
    assert traffic_elements(sizes, ONE_BYTE, array, large).tolist() == [[1600, 960, 4800]]
    assert traffic_elements(sizes, 2 * ONE_BYTE, array, large).tolist() == [[4800, 960, 4800]]


def test_arrays_share_folds_and_cut_what_streams():
    """Two folds of 8 + 8 + 8 + 64 - 2 cycles on one array; one each on two; on four each fold's 64
    rows in two parts."""
    sizes = np.array([[1.0, 64, 16, 8]])
    one = SystolicArray(8, 8, 1, 1.0, "ws")
    cycles = [compute_cycles(sizes, replace(one, arrays=count))[0] for count in (1, 2, 4)]
    assert cycles == [2 * 86 - 1, 86 - 1, 54 - 1]


@given(
    st.integers(1, 64), st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 5000),
    st.sampled_from(DATAFLOWS), st.sampled_from([1, 3, 8]),
)  # fmt: skip
def test_cells_never_do_more_than_one_multiply_add_a_cycle(b, m, n, k, dataflow, arrays):
    array = SystolicArray(128, 64, arrays, 1.0, dataflow)
    cycles = compute_cycles(np.array([[float(b), m, n, k]]), array)[0]
    assert (cycles + b) * 128 * 64 * arrays >= b * m * n * k


def test_products_of_a_system_take_the_arrays_time():
    """4096 x 8192 x 1024 on v4's eight arrays: 8 x 64 folds of 3 x 128 + 4096 - 2 cycles."""
    system = load_system("tpu-v4-pod")
    accelerator = system.accelerator
    seconds = systolic_seconds(product(1, 4096, 8192, 1024), system)[0]
    cycles = 8 * 64 / 8 * (3 * 128 + 4096 - 2) - 1
    overhead = accelerator.kernel.latency + accelerator.launch_overhead
    assert seconds == pytest.approx(cycles / 1.05e9 + overhead)


def test_a_system_that_states_no_array_is_refused():
    with pytest.raises(UsageError, match=r"H100.* describes no systolic array"):
        systolic_seconds(product(1, 64, 64, 8), load_system("dgx-h100"))


def test_estimators_have_names():
    assert estimator("kernel") is kernel_seconds
    with pytest.raises(UsageError, match="unknown estimator 'x'; choose from: kernel, systolic"):
        estimator("x")
