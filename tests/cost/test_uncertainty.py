"""Ranges: from the blind runs, and by what figures rest on."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from flint.cost import uncertainty
from flint.cost.hardware import Curve
from flint.cost.systems import load_system
from flint.cost.uncertainty import (
    Blind,
    apart,
    basis_of,
    blind_runs,
    off_by,
    program_of,
    spread_of,
    weight,
)
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import with_tables
from flint.graph.kinds import Source
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem

ACCURACY = Path(__file__).parents[2] / "benchmarks/accuracy"
RATES = ("tokens_per_s_per_device", "samples_per_s", "tflops_per_device", "mfu")


def table(name):
    with (ACCURACY / name).open() as file:
        return list(csv.DictReader(file))


def test_the_file_holds_how_far_off_every_blind_prediction_was():
    """From the tables of predictions and of figures themselves, in their order."""
    errors = [
        float(row["measured_s"]) / float(row["predicted_s"]) for row in table("blind_runs.csv")
    ]
    later = "second third fourth fifth sixth seventh eighth ninth tenth"
    for batch in ("", *later.split()):
        batch = f"blind/{batch}"
        figures = {row["id"]: row for row in table(f"{batch}/measured.csv")}
        for row in table(f"{batch}/predictions.csv"):
            if row["step_seconds"] and figures[row["id"]]["value"]:
                measured = float(figures[row["id"]]["value"])
                measured /= 100 if figures[row["id"]]["unit"] == "%" else 1
                longer = measured / float(row["value"])
                errors.append(1 / longer if row["metric"] in RATES else longer)
    assert [run.error for run in blind_runs()] == pytest.approx(errors, abs=1e-4)


def test_ranges_from_half_of_the_blind_runs_hold_about_two_of_three_of_the_others():
    runs = blind_runs()

    def inside(run, others):
        weights = [
            weight(
                (other.arrays, other.basis) == (run.arrays, run.basis),
                other.program == run.program,
                other.accelerator == run.accelerator,
            )
            for other in others
        ]
        return run.off <= off_by(others, weights)

    halves = runs[::2], runs[1::2]
    held = sum(inside(run, halves[1 - i]) for i in (0, 1) for run in halves[i])
    assert 0.6 < held / len(runs) < 0.75


def test_two_of_three_runs_by_weight_are_within():
    runs = [Blind("H100", "measured", "dense", "x", math.exp(off)) for off in (0.1, -0.2, 0.3)]
    assert off_by(runs, [1, 1, 1]) == pytest.approx(0.25)  # halfway: 1/2 and 5/6 of the weight
    assert off_by(runs, [98, 1, 1]) < off_by(runs, [1, 1, 98])


def test_programs_and_accelerators_that_were_further_off_have_wider_ranges():
    """Mixtures on v7x took 1.4 to 2.2 times as long as predicted, its dense programs 0.9 to 1.2.
    Dense programs on B200s took up to 2.5 times as long, on GB200s up to 1.9."""
    v7x, b200, gb200 = (load_system(n) for n in ("tpu-v7x-pod", "dgx-b200", "gb200-nvl72"))
    assert spread_of(v7x, program="mixture").share > 1.4 * spread_of(v7x).share
    assert spread_of(b200).share > spread_of(gb200).share


def test_bounds_are_factors():
    spread = spread_of(load_system("tpu-v5p-pod"))
    low, high = spread.bounds(2.0)
    assert 2.0 / low == pytest.approx(high / 2.0) == pytest.approx(1 + spread.share)


@pytest.mark.parametrize(
    ("source", "basis"),
    [
        ("fitted to training steps: docs/accuracy.md", "measured"),
        ("NVIDIA H100 datasheet", "datasheet"),
        ("assumed: as fitted for v5p", "assumed"),
        ("", "assumed"),
    ],
)
def test_a_source_says_what_a_figure_rests_on(source, basis):
    assert basis_of(source) == basis


def test_assumed_figures_and_exposed_communication_widen_the_range():
    fitted, assumed = load_system("dgx-h100"), load_system("gb200-nvl72")
    assert spread_of(fitted).basis == "measured" and spread_of(assumed).basis == "assumed"
    assert spread_of(fitted).share < spread_of(assumed).share
    assert spread_of(fitted).share < spread_of(fitted, exposed=0.3).share
    curve = Curve("matmul", "bf16", 1e-6, 1e12)
    calibrated = replace(assumed, accelerator=replace(assumed.accelerator, curves=(curve,)))
    assert spread_of(calibrated).basis == "measured"


def product(dtype: str, op: str = "dot_general"):
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    result = tensor_type((64, 64), "bf16")
    value = builder.input(tables.type(result))
    work = Work((WorkItem(Unit.MATMUL, dtype, 2 * 64**3, (1, 64, 64, 64)),), 64**2, 64**2)
    builder.compute(op, Role.CONTRACTION, (value,), (result,), work)
    return with_tables(builder.finish(()), tables.finish())


@pytest.mark.parametrize(
    ("graphs", "kind"),
    [
        ([product("bf16")], "dense"),
        ([product("f8E4M3FN"), product("f8E4M3FN"), product("bf16")], "narrow"),
        ([product("f8E4M3FN"), product("bf16", "aten._scaled_dot_product_attention")], "narrow"),
        ([product("f8E4M3FN"), product("bf16", "chlo.ragged_dot")], "mixture"),
    ],
)
def test_programs_are_identified_by_their_products(graphs, kind):
    assert program_of(graphs) == kind


@pytest.mark.parametrize(
    ("layer", "kind"),
    [
        ("blocks/moe/router", "mixture"), ("layers.3.block_sparse_moe.gate", "mixture"),
        ("layers.0.feed_forward.experts", "mixture"), ("blocks/mlp", "dense"),
        ("expertise/removed", "dense"),
    ],
)  # fmt: skip
def test_mixtures_are_identified_by_their_layers(layer, kind):
    graph = product("bf16")
    tables = replace(graph.tables, sources=(*graph.tables.sources, Source(layer=layer)))
    assert program_of([replace(graph, tables=tables)]) == kind


def test_points_of_one_system_are_distinguished_by_more_than_blind_pairs_differed():
    share = uncertainty.between_runs()
    assert not apart(1.0, math.exp(share * 0.99)) and not apart(1.0, 1.0)
    assert apart(1.0, math.exp(share * 1.01)) and apart(math.exp(share * 1.01), 1.0)
