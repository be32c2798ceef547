"""Ranges: from the blind runs, and by what figures rest on."""

from __future__ import annotations

import csv
import itertools
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flint.cost import uncertainty
from flint.cost.hardware import Curve
from flint.cost.systems import load_system
from flint.cost.uncertainty import apart, basis_of, spread_of

RUNS = Path(__file__).parents[2] / "benchmarks/accuracy/blind_runs.csv"
#: When these runs were predicted (docs/accuracy.md): fitted to training steps, all others were not.
FITTED = ("TPU v5e", "TPU v5p", "TPU v6e", "A100 80GB", "A100 40GB", "H100 80GB", "H100 96GB")


def blind():
    with RUNS.open() as file:
        for row in csv.DictReader(file):
            yield row, float(row["predicted_s"]), float(row["measured_s"])


def test_the_file_holds_what_two_of_three_blind_runs_were_within():
    errors = defaultdict(list)
    campaigns = defaultdict(list)
    for row, predicted, measured in blind():
        device = row["hardware"].split(",")[0]
        basis = "measured" if device in FITTED else "assumed"
        errors[device.startswith("TPU"), basis].append(abs(measured / predicted - 1))
        campaigns[row["source"], device].append(math.log(predicted / measured))
    content = uncertainty._blind()
    assert len(content["kind"]) == len(errors) == 4
    for kind in content["kind"]:
        found = errors[kind["arrays"], kind["basis"]]
        assert kind["runs"] == len(found)
        assert kind["share"] == pytest.approx(np.quantile(found, 2 / 3), abs=0.005)
    pairs = [abs(a - b) for runs in campaigns.values() for a, b in itertools.combinations(runs, 2)]
    assert content["pairs"]["runs"] == len(pairs)
    assert content["pairs"]["share"] == pytest.approx(np.quantile(pairs, 2 / 3), abs=0.005)


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
    fitted, assumed = load_system("tpu-v5p-pod"), load_system("tpu-v4-pod")
    assert spread_of(fitted).basis == "measured" and spread_of(assumed).basis == "assumed"
    assert spread_of(fitted).share < spread_of(assumed).share
    assert spread_of(fitted).share < spread_of(fitted, exposed=0.3).share
    curve = Curve("matmul", "bf16", 1e-6, 1e12)
    calibrated = replace(assumed, accelerator=replace(assumed.accelerator, curves=(curve,)))
    assert spread_of(calibrated).share == spread_of(fitted).share


def test_points_of_one_system_are_told_apart_by_more_than_blind_pairs_differed():
    share = uncertainty._blind()["pairs"]["share"]
    assert not apart(1.0, math.exp(share * 0.99)) and not apart(1.0, 1.0)
    assert apart(1.0, math.exp(share * 1.01)) and apart(math.exp(share * 1.01), 1.0)
