"""Which points nothing beats, worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flint.cli.sweeping import _table
from flint.mesh.mesh import Mesh
from flint.sweeps import page, picture
from flint.sweeps.description import Sweep
from flint.sweeps.points import Point
from flint.sweeps.rows import COLUMNS, alike, front, remark_on_alike, remarks, to_rows, write
from flint.sweeps.running import Outcome


def outcome(ranks, step, memory, *, fits=True):
    point = Point("t.py:f", Mesh((ranks,)), None, "s", "s", (), Path("w"), Path("p"))
    result = dict.fromkeys(COLUMNS, 0) | {
        "step_seconds": step, "peak_memory_bytes": memory, "fits": fits,
    }  # fmt: skip
    return Outcome(point, result)


def test_a_point_is_best_unless_another_is_no_worse_in_all_and_better_in_one():
    rows = to_rows(
        [
            outcome(2, 4.0, 40),  # the cheapest: 8 device-seconds
            outcome(4, 3.0, 30),  # 12 device-seconds, less time and memory
            outcome(4, 3.0, 31),  # the same with more memory: beaten
            outcome(8, 1.0, 90, fits=False),  # the fastest, but it does not fit
            Outcome(outcome(3, 1.0, 1).point, reason="no"),
        ]
    )
    assert [row["pareto"] for row in rows] == [True, True, False, False, None]
    assert rows[4]["error"] == "no"


@given(st.lists(st.tuples(*[st.integers(1, 6)] * 3, st.booleans()), max_size=40))
def test_the_best_are_those_that_no_other_of_all_beats(points):
    rows = to_rows([outcome(r, float(s), m, fits=fits) for r, s, m, fits in points])
    values = [(s, m, s * r) for r, s, m, _ in points]
    for row, mine, (*_, fits) in zip(rows, values, points, strict=True):
        beaten = any(
            other != mine and all(a <= b for a, b in zip(other, mine, strict=True))
            for other, (*_, its) in zip(values, points, strict=True)
            if its
        )
        assert row["pareto"] == (fits and not beaten)


def test_points_that_errors_cannot_tell_apart_are_named():
    """Two of three pairs of one campaign differ by less than 15% (``blind_errors.csv``)."""
    ranged = [outcome(2, 1.0, 9), outcome(4, 1.1, 9), outcome(8, 1.3, 9), outcome(1, 1.0, 9)]
    for item in ranged[:3]:
        item.result["range"] = {"share": 0.2}
    rows = to_rows(ranged[:3])
    assert [row["mesh"] for row in alike(rows)] == ["2", "4"]
    [said] = remark_on_alike(rows)
    assert said.startswith("4 cannot be distinguished from the fastest, 2:")
    rows[2]["system"] = "other"  # its error is its own: within both ranges, 28% together
    assert [row["mesh"] for row in alike(rows)] == ["2", "4"]
    rows[2]["step_seconds"] = 1.28
    assert [row["mesh"] for row in alike(rows)] == ["2", "4", "8"]
    assert remark_on_alike(to_rows([ranged[3], outcome(2, 1.0, 9)])) == []


def test_the_front_in_two_columns_goes_down():
    rows = to_rows([outcome(1, 1.0, 9), outcome(1, 2.0, 5), outcome(1, 3.0, 7)])
    best = front(rows, "step_seconds", "peak_memory_bytes")
    assert [(row["step_seconds"], row["peak_memory_bytes"]) for row in best] == [(1.0, 9), (2.0, 5)]


def test_what_simulations_note_is_said_of_whose_points(tmp_path):
    def noted(ranks, system, *notes):
        one = outcome(ranks, 1.0, 1)
        point = replace(one.point, system_name=system)
        return Outcome(point, one.result | {"notes": notes})

    rows = to_rows(
        [
            noted(72, "a", "fused"),
            noted(64, "a", "fused", "after pass hoist:by=1"),
            noted(72, "b", "fused"),
            noted(64, "b", "fused", "64 of 72 are used"),
            Outcome(outcome(3, 1.0, 1).point, reason="no"),
        ]
    )
    assert remarks(rows) == ["fused", "64 of 72 are used (mesh 64; system b)"]
    sweep = Sweep(("t.py:f",), ("72", "64"), ("a", "b"), tmp_path)
    write(sweep, rows)
    assert json.loads((tmp_path / "results.json").read_text())["rows"][3]["notes"] == [
        "fused", "64 of 72 are used"
    ]  # fmt: skip
    assert ",fused; 64 of 72 are used," in (tmp_path / "results.csv").read_text()
    assert "Note: 64 of 72 are used (mesh 64; system b)." in page.page(sweep, rows, None)


def test_notes_that_differ_in_numbers_only_are_one():
    outcomes = [outcome(2, 4.0, 40), outcome(4, 3.0, 30), outcome(8, 1.0, 90)]
    for item, note in zip(
        outcomes, ("H100: 9.5% are f32", "H100: 8% are f32", "H200: 8% are f32"), strict=True
    ):
        item.result["notes"] = [note]
    assert remarks(to_rows(outcomes)) == [
        "H100: 9.5% are f32; so at 2 points, with other numbers (mesh 2, 4)",
        "H200: 8% are f32 (mesh 8)",
    ]


def test_the_picture_is_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    rows = to_rows([outcome(2, 4.0, 40), outcome(4, 3.0, 50, fits=False)])
    assert picture.draw(rows, tmp_path / "sweep.png")
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert not picture.draw([], tmp_path / "none.png")


def test_axes_have_the_units_that_fit(tmp_path, monkeypatch):
    """Steps of at most 50 us on 2 devices, and 3 MiB: no axis counts in 0.00005 s or 0.003 GiB."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    drawn = []
    save = Figure.savefig

    def kept(figure, *arguments, **options):
        drawn.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", kept)
    rows = to_rows([outcome(2, 5e-5, 2 * 2**20), outcome(2, 4e-5, 3 * 2**20)])
    assert picture.draw(rows, tmp_path / "sweep.png")
    memory, cost = drawn[0].axes
    assert (memory.get_xlabel(), memory.get_ylabel()) == ("step (us)", "peak memory per rank (MiB)")
    assert cost.get_ylabel() == "device time of a step (us)"
    assert sorted(map(tuple, memory.lines[0].get_xydata().round(6))) == [(40, 3), (50, 2)]
    assert sorted(map(tuple, cost.lines[0].get_xydata().round(6))) == [(40, 80)]


def test_a_point_without_passes_is_called_as_the_option_has_it():
    [row] = to_rows([outcome(2, 4.0, 40)])
    other = {**row, "pass": "hoist:by=1"}
    table = _table([row, other], ("mesh", "pass"))
    assert [cells[1] for cells in table.rows] == ["none", "hoist:by=1"]
    text = page.page(Sweep(("t.py:f",), ("2",), ("s",), Path("out")), [row, other], None)
    assert '<td class="p">none</td>' in text


def test_the_page_has_the_units_of_the_command_line():
    rows = to_rows([outcome(2, 5e-5, 3 * 2**20)])
    sweep = Sweep(("t.py:f",), ("2",), ("s",), Path("out"))
    text = page.page(sweep, rows, None)
    assert ">3.0 MiB<" in text
    assert ">50 us<" in text
