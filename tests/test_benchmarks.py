"""The benchmarks' own arithmetic, and that their generators make what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import flint
from flint.mesh import Mesh

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import growth
import measure
import report


def test_the_exponent_of_a_power_law_is_found() -> None:
    sizes = [10, 100, 1000]
    assert measure.slope(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)


def test_a_command_is_measured_and_its_failure_said() -> None:
    measured = measure.measure([sys.executable, "-c", "pass"], runs=2)
    assert measured.runs == 2
    assert 0 < measured.fastest <= measured.wall <= measured.slowest
    with pytest.raises(RuntimeError, match="broken"):
        measure.measure([sys.executable, "-c", "raise SystemExit('broken')"], runs=1)


def test_the_growing_program_has_three_communications_per_layer_and_a_ring(tmp_path: Path) -> None:
    path = tmp_path / "growing.mlir"
    path.write_text(growth.program(data=16, model=8, layers=5))
    workload = flint.convert(path)
    assert workload.mesh == Mesh((16, 8), ("data", "model"))
    kinds = [
        (node.op, times)
        for graph, times in workload.graph.walk()
        for node in graph
        if node.communication
    ]
    assert sorted(kinds) == [
        ("all_gather", 5),
        ("all_reduce", 5),
        ("collective_permute", 1),
        ("reduce_scatter", 5),
    ]


def test_tables_are_markdown() -> None:
    assert report.table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
