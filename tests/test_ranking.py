"""Meshes of one model, as measured by others and as simulated: the same order, the same best."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy"))

import layouts
import ranking
from page import DOCS, PAGE

ACCURACY = ranking.FILE.parent


def test_pairs_of_meshes_are_in_the_order_that_was_measured() -> None:
    right = ranking.pairs(ranking.groups())
    assert len(right) >= 9 and sum(right) >= 0.95 * len(right)


def test_the_mesh_that_would_be_chosen_is_the_fastest() -> None:
    assert all(ranking.behind(meshes) <= 0.03 for meshes in ranking.groups().values())


def test_the_figures_are_those_of_the_tables() -> None:
    pages = "".join(page.read_text() for page in DOCS.glob("*.md"))
    with (ACCURACY / "blind_runs.csv").open() as file:
        blind = {(row["measured_s"], row["predicted_s"]) for row in csv.DictReader(file)}
    with ranking.FILE.open() as file:
        for row in csv.DictReader(file):
            measured, simulated = row["measured_s"], row["simulated_s"]
            if row["from"] == "docs/accuracy/published.md":
                assert f"| {measured} | {simulated} |" in pages
            elif row["from"] == "blind_runs.csv":
                assert (measured, simulated) in blind
            else:  # tokens/s: measured, and predicted
                tokens = float(row["sequences"])
                assert f"| {tokens:.0f} | {tokens / float(simulated):.0f} |" in pages


def test_a_pair_that_is_hardly_apart_does_not_count() -> None:
    close = [ranking.Mesh("a", 1.0, 2.0), ranking.Mesh("b", 1.04, 1.0)]
    wrong = [ranking.Mesh("a", 1.0, 2.0), ranking.Mesh("b", 1.06, 1.0)]
    assert ranking.pairs({"x": close, "y": wrong}) == [False]
    assert ranking.behind(wrong) == pytest.approx(0.06)


def test_layouts_that_were_predicted_before_they_were_compared_are_in_the_order_on_the_page() -> (
    None
):
    page = PAGE.read_text()
    for column, name in (("predicted_s", "predicted"), ("since_s", "since")):
        right = ranking.pairs(layouts.groups(column))
        share = sum(right) / len(right)
        assert share > 0.9
        assert f"| {name} | {sum(right)} of {len(right)} ({share:.0%}) |" in page


def test_the_layout_that_the_predictions_would_choose_is_the_fastest() -> None:
    found = layouts.groups("predicted_s")
    assert len(found) == 5
    assert all(ranking.behind(meshes) <= 0.03 for meshes in found.values())


def test_stages_are_divided_with_embedding_norm_and_head() -> None:
    # 60 layers and these three: 63 over 16 stages are 4 for each of 15, and 3 for the last.
    assert layouts.blocks_of_stages(60, 16) == [3, *14 * [4], 1]
    assert layouts.blocks_of_stages(40, 1) == [40]
