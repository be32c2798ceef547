"""The benchmarks' own arithmetic, and that their generators make what they say."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flint
from flint.mesh.mesh import Mesh
from flint.post_execution.converting import convert_traces

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import captures
import growth
import kineto_trace
import machine
import measure
import mesh_programs
import post_execution
import report
import tables


def test_the_exponent_of_a_power_law_is_found() -> None:
    sizes = [10, 100, 1000]
    assert measure.slope(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)
    assert measure.slope(sizes, [7, 7, 7]) == pytest.approx(0)


def test_a_command_is_measured_and_its_failure_said() -> None:
    command = [sys.executable, "-c", 'print(\'{"a": {"b": 3}}\')']
    measured = measure.measure(command, runs=2)
    assert measured.runs == len(measured.said) == 2
    assert 0 < measured.fastest <= measured.wall <= measured.slowest
    assert measured.peak > 2**20
    assert measured.document("a", "b") == 3
    with pytest.raises(RuntimeError, match="broken"):
        measure.measure([sys.executable, "-c", "raise SystemExit('broken')"], runs=1, warm=False)


def test_runs_that_are_measured_by_turns_are_summed_up_as_one_series() -> None:
    command = [sys.executable, "-c", "print(7)"]
    single = [measure.measure(command, runs=1, warm=False) for _ in range(3)]
    walls = sorted(item.wall for item in single)
    found = measure.together(single)
    assert (found.fastest, found.wall, found.slowest) == tuple(walls)
    assert (found.runs, found.said) == (3, ("7\n",) * 3)


def test_before_is_called_in_front_of_every_run() -> None:
    calls: list[int] = []
    measure.measure([sys.executable, "-c", ""], runs=2, before=lambda: calls.append(1))
    assert len(calls) == 3  # one to warm up


def test_a_series_has_the_exponents_of_all_points_and_of_the_last_step() -> None:
    found = growth.series("ops", [1, 10, 100], {"whole": [1.0, 1.0, 10.0]})
    # Least squares through (0, 0), (1, 0), (2, 1): 1/2.
    assert found["exponents"]["whole"] == pytest.approx(0.5)
    assert found["last_exponents"]["whole"] == pytest.approx(1.0)


def test_the_efficiency_of_a_sweep_is_a_row_with_its_target() -> None:
    item = {
        "points": 64, "cores": 4, "wall": 10.0, "core": 34.0, "alone": 33.0, "again": 1.0,
        "loops": 0.95, "efficiency": 0.85,
        "of_points": 0.825,
    }  # fmt: skip
    text = report._sweeps(item)
    assert "| 95% | 82% | 85% | 80% | yes |" in text and "34.00 s" in text
    assert "**no**" in report._sweeps(item | {"efficiency": 0.5})


@pytest.mark.parametrize("permute", [True, False])
def test_the_step_for_any_mesh_has_the_same_communications_on_every_mesh(
    tmp_path: Path, permute: bool
) -> None:
    path = tmp_path / "step.mlir"
    for ranks in (128, 640):
        path.write_text(mesh_programs.text(ranks, layers=5, permute=permute))
        workload = flint.convert(path)
        assert workload.mesh == Mesh((ranks // 64, 8, 8), ("replica", "shard", "tensor"))
        counts: dict[str, int] = {}
        for graph, times in workload.graph.walk():
            for node in graph:
                if node.communication:
                    counts[node.op] = counts.get(node.op, 0) + times
        # Per layer 4 pairs of projections: 8 weights gathered, 8 gradients scattered and reduced
        # over the replicas, 4 activations reduced.
        assert counts == {
            "all_gather": 40,
            "reduce_scatter": 40,
            "all_reduce": 60,
            **({"collective_permute": 1} if permute else {}),
        }


def test_ranks_that_fill_no_mesh_are_refused() -> None:
    with pytest.raises(ValueError, match="100 ranks"):
        mesh_programs.text(100, layers=1)


def test_the_processor_and_the_file_system_are_read(tmp_path: Path) -> None:
    assert machine.processor("processor\t: 0\nmodel name\t: A  CPU\n") == "A CPU"
    mounts = f"/dev/a / ext4 rw 0 0\n/dev/b {tmp_path.resolve()} xfs rw 0 0\n"
    assert machine.file_system(tmp_path / "x", mounts) == ("/dev/b", "xfs")
    assert machine.file_system(Path("/elsewhere"), mounts) == ("/dev/a", "ext4")


def test_busy_ticks_leave_out_idling_and_waiting_for_a_disk() -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice
    assert machine.processor_ticks("cpu  10 1 5 100 20 2 3 4 9 9\ncpu0 1\n") == (25, 145)


def test_tables_are_markdown() -> None:
    assert tables.table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_only_what_stands_between_the_markers_is_replaced() -> None:
    page = f"mine\n{report.BEGIN}\nold\n{report.END}\nmine too\n"
    new = report.between(page, "new\n")
    assert new == f"mine\n{report.BEGIN}\nnew\n{report.END}\nmine too\n"
    assert report.between(new, "new") == new
    with pytest.raises(ValueError, match="measured"):
        report.between("no markers", "new")


def test_a_missed_target_is_reported() -> None:
    item = {"wall": 6.0, "fastest": 5.0, "slowest": 7.0, "peak": 2e6, "runs": 3}
    assert tables.row("x", item, target="5 s", met=False) == [
        "x",
        "6.00 s",
        "5.00 - 7.00 s",
        "2 MB",
        "5 s",
        "**no**",
    ]


def test_memory_of_a_child_counts_with_its_parents() -> None:
    """Both hold 64 MiB until the child ends, which it does when its parent says so."""
    child = "x = bytearray(2**26); print(1, flush=True); input()"
    parent = (
        "import subprocess, sys, time\n"
        "x = bytearray(2**26)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}], text=True,\n"
        "    stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "time.sleep(0.5)\n"
        "child.communicate('go')\n"
    )
    alone = captures.peak_of_tree([sys.executable, "-c", "import time; x = bytearray(2**26)"])
    together = captures.peak_of_tree([sys.executable, "-c", parent])
    assert together > 2**27
    assert together > alone


def test_a_command_that_fails_has_no_memory() -> None:
    with pytest.raises(RuntimeError, match="status 3"):
        captures.peak_of_tree([sys.executable, "-c", "raise SystemExit(3)"])


@pytest.mark.parametrize("make", [post_execution.execution_trace, post_execution.for_both])
def test_the_execution_trace_of_the_benchmark_is_a_chain_of_products(
    tmp_path: Path, make: Callable[[int], dict[str, Any]]
) -> None:
    path = tmp_path / "et_rank0.json"
    path.write_text(json.dumps(make(30)))
    graph = convert_traces([path]).graph
    assert len(graph) == 30
    # Every product but the first reads what the one before it wrote; flops are 2 x 1024^3 each.
    edges = zip(graph.producer[graph.operand].tolist(), graph.consumer.tolist(), strict=True)
    assert {pair for pair in edges if pair[0] >= 0} == {(i, i + 1) for i in range(29)}
    assert graph.flops_by_node().tolist() == [2 * 1024**3] * 30


def test_the_kineto_trace_of_the_benchmark_has_its_kernels_as_nodes(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    kineto_trace.write(path, 100_000, steps=1)
    events = json.loads(path.read_text())["traceEvents"]
    kernels = sum(event.get("cat") == "kernel" for event in events)
    assert len(convert_traces([path]).programs[0].graph) == kernels
