"""Mixtures of Megatron-Core in the blind test: weights of their parts, sums of rows."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy"))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import predict
from moe_rows import permuting
from recipes import HERE, read_recipes

from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Work

RECIPES = read_recipes(HERE / "eighth" / "recipes.csv")
H100 = load_system("dgx-h100")


def expressed(name):
    return predict.expressed(RECIPES[name])


def test_every_row_of_the_eighth_batch_is_expressed() -> None:
    assert len(RECIPES) == 27
    for name, recipe in RECIPES.items():
        found = predict.expressed(recipe)
        assert sum(part.weight for part in found.parts) == pytest.approx(1.0), name
        assert found.batch == recipe.batch, name


def test_a_pipelines_step_is_one_batch_and_what_every_further_one_adds() -> None:
    """120 batches and 3 of 4 stages' bubbles, 16 of 61 layers on a rank, captured with 1 and 2."""
    parts = expressed("m6-gb300-dsv3-512").parts
    seconds = {(1, 1): 5.0, (1, 2): 7.0, (2, 1): 6.0, (2, 2): 9.0}  # 3 + batches x (1 + layers)

    def layers(part):
        return 1 if "layers=1," in part.case.key else 2

    step = sum(part.weight * seconds[layers(part), part.case.batches] for part in parts)
    assert step == pytest.approx(3 + (1 + 16) * (120 + 3 / 4))


def test_exchanges_of_all_batches_but_the_first_are_beside_other_work() -> None:
    parts = expressed("m6-gb300-dsv3-512").parts
    of_one_layer = [part for part in parts if "layers=1," in part.case.key]
    once, twice = (part.hidden for part in of_one_layer)
    assert once == -twice
    share = load_system(parts[0].case.system).accelerator.kernel.beside_communication
    assert sum(part.hidden for part in parts if part.case.batches == 2) == pytest.approx(
        share * (119 + 3 / 4)
    )


def test_sums_of_rows_take_the_time_in_which_their_bytes_are_moved() -> None:
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    rows, sums = tensor_type((65536, 2880), "bf16"), tensor_type((16384, 2880), "bf16")
    numbers = tensor_type((65536,), "i64")
    given = [builder.input(tables.type(kind)) for kind in (sums, rows, numbers)]
    work = Work((), rows.bytes + numbers.bytes, sums.bytes)
    builder.compute("scatter", Role.UPDATE, given, (sums,), work)
    graph = with_tables(builder.finish(()), tables.finish())
    rate = H100.accelerator.memory_bandwidth * H100.accelerator.kernel.memory_efficiency
    moved = rows.bytes + numbers.bytes + sums.bytes

    def slow(graph, system):
        return np.full(len(graph), 1.0)

    assert permuting(slow)(graph, H100).tolist() == pytest.approx([moved / rate])


def test_rows_of_automodel_are_summed_by_transformer_engine() -> None:
    """Its dispatcher asks for fused permutation; torchtitan's mixtures add rows at indices."""
    given = read_recipes(HERE.parent / "given" / "recipes.csv")
    for name in ("am-qwen30b", "am-oss20b"):
        assert all(part.kernels is not None for part in predict.expressed(given[name]).parts)
    titan = read_recipes(HERE / "recipes.csv")["tt-h100-dsv3-16b-sdpa"]
    assert all(part.kernels is None for part in predict.expressed(titan).parts)
