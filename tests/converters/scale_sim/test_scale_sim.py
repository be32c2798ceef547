"""Files for SCALE-Sim, and its report on them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import flint
from flint.cost.systems import load_system, whole_description
from flint.errors import FlintError, UsageError
from tests.support.command_line import flint_here

DATA = Path(__file__).parents[2] / "data/scale_sim"

PRODUCTS = """
module @products attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func @main(%a: tensor<64x96xbf16>, %b: tensor<96x48xbf16>, %c: tensor<64x32xbf16>,
                  %d: tensor<32x48xbf16>, %e: tensor<4x40x32xbf16>, %f: tensor<4x32x24xbf16>)
      -> (tensor<64x48xbf16>, tensor<64x48xbf16>, tensor<4x40x24xbf16>) {
    %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<64x96xbf16>, tensor<96x48xbf16>) -> tensor<64x48xbf16>
    %1 = stablehlo.dot_general %c, %d, contracting_dims = [1] x [0]
        : (tensor<64x32xbf16>, tensor<32x48xbf16>) -> tensor<64x48xbf16>
    %2 = stablehlo.dot_general %e, %f, batching_dims = [0] x [0], contracting_dims = [2] x [1]
        : (tensor<4x40x32xbf16>, tensor<4x32x24xbf16>) -> tensor<4x40x24xbf16>
    return %0, %1, %2 : tensor<64x48xbf16>, tensor<64x48xbf16>, tensor<4x40x24xbf16>
  }
}
"""
ARRAY = """
[accelerator.systolic]
rows = 32
columns = 32
clock = "1 MHz"
dataflow = "ws"
"""


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    path = tmp_path_factory.mktemp("products") / "products.mlir"
    path.write_text(PRODUCTS)
    return flint.convert(path)


@pytest.fixture
def system(tmp_path):
    """One slow array of 32 x 32, at 1 MHz, in a system like dgx-h100."""
    path = tmp_path / "array.toml"
    head, network, tail = whole_description("dgx-h100").partition("[[network]]")
    path.write_text(head + ARRAY + network + tail)
    return load_system(path)


def test_distinct_products_become_layers(workload, system, tmp_path):
    folder = tmp_path / "scale"
    assert workload.write_scale_sim(folder, system) == 3
    assert (folder / "gemm.csv").read_text() == (DATA / "gemm.csv").read_text()
    topology = (folder / "topology.csv").read_text().splitlines()
    assert topology[1:] == [
        "g0,64,96,1,96,1,48,1,",
        "g1,64,32,1,32,1,48,1,",
        "g2,40,32,1,32,1,24,1,",
    ]
    text = (folder / "scale.cfg").read_text()
    assert "ArrayHeight: 32\n" in text and "Dataflow: ws\n" in text and ": CALC\n" in text


def test_its_report_gives_the_estimators_times(workload, system, tmp_path):
    """Two ways to the same time: SCALE-Sim's cycles, and our model of it; four products of a batch
    are four layers."""
    folder = tmp_path / "scale"
    workload.write_scale_sim(folder, system)
    (folder / "run").mkdir()
    shutil.copy(DATA / "COMPUTE_REPORT.csv", folder / "run")
    measured = workload.simulate(system, kernels=folder)
    assert measured.notes[-1].startswith("3 of 3 measured durations are used")
    modelled = workload.simulate(system, estimator="systolic")
    overhead = 3 * (system.accelerator.launch_overhead + system.accelerator.kernel.latency)
    assert measured.step_seconds == pytest.approx(modelled.step_seconds - overhead)
    # By hand: 2 x 3 folds, 2 folds, and 4 times 1 fold of 2 x 32 + 32 + rows - 2 cycles, less one.
    cycles = (6 * 158 - 1) + (2 * 158 - 1) + 4 * (134 - 1)
    assert measured.step_seconds == pytest.approx(cycles * 1e-6)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("COMPUTE_REPORT.csv", None, "no COMPUTE_REPORT.csv in it or below"),
        ("COMPUTE_REPORT.csv", "a,b\n", "is not a compute report of SCALE-Sim"),
        ("COMPUTE_REPORT.csv", "LayerID, Total Cycles,\n0, 12,\n", "has 1 layers, gemm.csv .* 3"),
        ("COMPUTE_REPORT.csv", "LayerID, Total Cycles,\n0, x,\n", ":2: expected layer 0 and its"),
        ("COMPUTE_REPORT.csv", "LayerID, Total Cycles,\n1, 7,\n", ":2: expected layer 0 and its"),
        ("COMPUTE_REPORT.csv", "LayerID, Total Cycles,\n0, 1e300,\n", ":2: expected layer 0 and"),
        ("kernels.json", "{", "kernels.json: cannot be read"),
        ("kernels.json", "[]", "is not of the form"),
    ],
)
def test_what_does_not_belong_together_is_refused(workload, system, tmp_path, name, text, message):
    folder = tmp_path / "scale"
    workload.write_scale_sim(folder, system)
    if text is not None:
        (folder / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        workload.simulate(system, kernels=folder)


@pytest.mark.parametrize("name", ["kernels.json", "COMPUTE_REPORT.csv"])
def test_a_pipe_or_device_in_its_folder_is_refused(workload, system, tmp_path, name):
    folder = tmp_path / "scale"
    workload.write_scale_sim(folder, system)
    (folder / "COMPUTE_REPORT.csv").touch()
    (folder / name).unlink()
    (folder / name).symlink_to("/dev/zero")
    with pytest.raises(FlintError, match=f"{name}: expected a file, found a pipe or device"):
        workload.simulate(system, kernels=folder)


def test_without_an_array_or_a_product_nothing_is_written(workload, tmp_path, loop):
    with pytest.raises(UsageError, match="dgx-h100 states no systolic array"):
        workload.write_scale_sim(tmp_path / "scale", "dgx-h100")
    path = tmp_path / "add.mlir"
    path.write_text(
        "func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
        "  %0 = stablehlo.add %a, %a : tensor<8xf32>\n  return %0 : tensor<8xf32>\n}\n"
    )
    with pytest.raises(FlintError, match="no matrix product"):
        flint.convert(path).write_scale_sim(tmp_path / "scale", "tpu-v4-pod")
    assert not (tmp_path / "scale").exists()


def test_the_command_line_writes_and_reads(workload, tmp_path):
    workload.save(tmp_path / "out")
    written = flint_here(
        "inspect", "out", "--scale-sim", "scale", "--system", "tpu-v4-pod", cwd=tmp_path
    )
    assert "flint: wrote scale" in written.stderr
    document = json.loads((tmp_path / "scale/kernels.json").read_text())
    assert document["arrays"] == 8 and document["clock"] == 1.05e9
    lines = ["LayerID, Total Cycles, Stall Cycles,", *(f"{i}, 1000, 0," for i in range(3))]
    (tmp_path / "scale/COMPUTE_REPORT.csv").write_text("\n".join(lines))
    shown = flint_here(
        "simulate", "out", "--durations", "scale", "--system", "tpu-v4-pod", "--json", cwd=tmp_path
    )
    # Six products (four of them a batch) of 1,000 cycles on eight arrays.
    assert json.loads(shown.stdout)["step_seconds"] == pytest.approx(6000 / 8 / 1.05e9, rel=1e-4)
