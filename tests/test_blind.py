"""The blind test: each row is expressed or has a reason, and only the sealed figures are joined."""

from __future__ import annotations

import csv
import hashlib
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy"))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy" / "blind"))

import predict
import score
from accumulating import accumulations, within_products
from cases_of_runs import NoCase
from narrow import _cast, narrow
from recipes import read_recipes
from scalings import SCALINGS

from flint.cost.kernels import kernel_seconds
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.graph import NodeKind, Phase, with_tables
from flint.graph.kinds import Source
from flint.graph.tensor_types import TensorType, tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem

RECIPES = read_recipes()
FOUND = {name: predict.expressed(recipe) for name, recipe in RECIPES.items()}
H100 = load_system("dgx-h100")


def test_every_row_is_expressed_or_has_a_reason() -> None:
    assert len(RECIPES) == 100
    for name, found in FOUND.items():
        if isinstance(found, NoCase):
            assert found.reason, name
        else:
            assert sum(part.weight for part in found.parts) == pytest.approx(1.0), name
            assert found.batch == RECIPES[name].batch or not RECIPES[name].batch, name


def test_the_table_holds_no_other_rows_than_the_recipes() -> None:
    rows = predict.read_predictions()
    assert rows.keys() <= RECIPES.keys()
    for row in rows.values():
        assert bool(row["left_out"]) != bool(row["step_seconds"])
        assert row["date"] and row["commit"]
        if row["step_seconds"]:
            assert float(row["low"]) <= float(row["value"]) <= float(row["high"])


def test_two_predictions_at_once_are_both_kept(tmp_path) -> None:
    names, table = list(RECIPES)[:8], tmp_path / "predictions.csv"
    rows = [dict.fromkeys(predict.COLUMNS, "") | {"id": n, "step_seconds": "1"} for n in names]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda row: predict.add_prediction(row, RECIPES, table), rows))
    assert list(predict.read_predictions(table)) == names
    predict.add_prediction(rows[0] | {"step_seconds": "2"}, RECIPES, table)
    assert predict.read_predictions(table)[names[0]]["step_seconds"] == "1"  # made once


@pytest.mark.parametrize(
    ("name", "seconds", "value"),
    [
        ("iw-llama70-64-fp8", 2.0, 2.0),
        ("ao-h100-8b-bf16", 2.0, 4096.0),  # 8192 tokens of a device in two seconds
        ("a100-fastdit-xl2", 0.5, 256.0),  # 128 images
        # NeMo: 8192 tokens a second and GPU; a token has 32 layers of width 4096 with
        # 12 + 12 / 4 + 18 * 3.5 + 12 * 2 and six times the head's 128256 x 4096.
        ("nemo-b200-llama3-8b-8k", 64.0, 8192 * (32 * 4096**2 * 102 + 6 * 128256 * 4096) / 1e12),
    ],
)
def test_seconds_in_a_rows_own_metric(name, seconds, value) -> None:
    assert RECIPES[name].figure(seconds) == pytest.approx(value)


def test_a_share_of_the_peak_counts_the_experts_that_a_token_has() -> None:
    """256 chips at 918 TFLOP/s and 256 sequences of 8192: three times the forward pass of a token,
    72 layers of three products of 8192 x 24576 for two experts, four of attention, its scores."""
    block = 2 * 8192 * (3 * 2 * 24576 + 256 * (2 * 32 + 2 * 8)) + 4 * 8192 * 32 * 256
    token = 72 * block + 2 * 8192 * 32000
    expected = 3 * token * 8192 / 918e12 / 30
    assert RECIPES["v6e-moe700b-init"].figure(30.0) == pytest.approx(expected)


def product(m: int, n: int, k: int):
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    result = tensor_type((m, n), "bf16")
    value = builder.input(tables.type(result))
    items = (WorkItem(Unit.MATMUL, "bf16", 2 * m * n * k, (1, m, n, k)),)
    work = Work(items, 2 * (m * k + k * n), 2 * m * n)
    builder.compute("dot_general", Role.CONTRACTION, (value,), (result,), work)
    return with_tables(builder.finish(()), tables.finish())


def test_a_narrow_product_takes_half_the_time_and_its_casts() -> None:
    """On an H100, whose f8 peak is twice that of bf16; each operand's element moves 5 bytes."""
    m, n, k = 8192, 4096, 16384
    graph = product(m, n, k)
    ideal = replace(
        H100.accelerator.kernel, latency=0.0, matmul_efficiency=1.0, memory_efficiency=1.0
    )
    accelerator = replace(H100.accelerator, kernel=ideal, launch_overhead=0.0)
    system = replace(H100, accelerator=accelerator)
    casts = 5 * k * (m + n) / accelerator.memory_bandwidth
    wide = kernel_seconds(graph, system)
    assert narrow(SCALINGS["tensorwise"])(graph, system) == pytest.approx(
        wide / 2 + casts, rel=1e-3
    )
    weights = 5 * k * n / accelerator.memory_bandwidth
    kept = narrow(SCALINGS["tensorwise"], tokens=m, kept=True)(graph, system)
    assert kept == pytest.approx(wide / 2 + casts - weights, rel=1e-3)
    for stays in (
        narrow(SCALINGS["tensorwise"], wide=(4096,)),
        narrow(SCALINGS["rowwise_gw_hp"], tokens=k),
    ):
        assert stays(graph, system) == pytest.approx(wide)


def test_a_value_is_cast_once_for_each_dim_that_products_sum_over() -> None:
    """x (m, k) by two weights (k, n), and the gradient of one of them, which sums over m: 5 bytes
    per element for x, both weights and the gradient g (m, n), 3 more for x along its other dim."""
    m, n, k = 4096, 2048, 1024
    tables = TableBuilder()
    builder = GraphBuilder(tables)

    def value(*shape: int) -> int:
        return builder.input(tables.type(tensor_type(shape, "bf16")))

    def multiply(left: int, right: int, rows: int, columns: int, summed: int) -> None:
        result = tensor_type((rows, columns), "bf16")
        sizes = (1, rows, columns, summed)
        items = (WorkItem(Unit.MATMUL, "bf16", 2 * rows * columns * summed, sizes),)
        work = Work(items, 0, result.bytes)
        builder.compute("dot_general", Role.CONTRACTION, (left, right), (result,), work)

    x, g = value(m, k), value(m, n)
    multiply(x, value(k, n), m, n, k)
    multiply(x, value(k, n), m, n, k)
    multiply(x, g, k, n, m)
    graph = with_tables(builder.finish(()), tables.finish())
    casts = _cast(graph, SCALINGS["tensorwise"], np.ones(3, bool))
    assert casts.tolist() == [5 * (m * k + k * n), 5 * k * n, 3 * m * k + 5 * m * n]
    turned = _cast(graph, SCALINGS["torchao tensorwise"], np.ones(3, bool))
    assert turned[2] - casts[2] == pytest.approx(3 * m * k * (2.2 / 1.4 - 1), rel=0.02)


@pytest.mark.thorough
def test_windowed_attention_is_that_of_a_band() -> None:
    import jax
    from jax_rows import windowed

    from flint.models.jax.layers import attend

    keys = jax.random.split(jax.random.key(0), 3)
    q, k, v = (
        jax.random.normal(key, (2, 16, heads, 4))
        for key, heads in zip(keys, (4, 2, 2), strict=True)
    )
    rows, columns = np.arange(16)[:, None], np.arange(16)[None]
    band = (columns <= rows) & (columns > rows - 4)
    # The padding before the first block is masked by nothing: its first rows see zeros too.
    expected = attend(q, k, v, jax.numpy.asarray(band))
    np.testing.assert_allclose(windowed(q, k, v, window=4)[:, 4:], expected[:, 4:], atol=1e-5)


def sealed(tmp_path, rows: str) -> Path:
    path = tmp_path / "measured.csv"
    path.write_text(rows)
    return path


def prediction(name: str, value: str, low: str, high: str) -> dict[str, str]:
    return dict.fromkeys(predict.COLUMNS, "") | {
        "id": name, "accelerator": "X", "kind": "dense", "step_seconds": "1", "value": value,
        "low": low, "high": high, "peak_GiB": "55", "fits": "yes",
    }  # fmt: skip


def test_scores_join_figures_by_id_and_tell_errors_of_seconds(tmp_path) -> None:
    text = "id,value,peak_memory_GiB\nao-h100-8b-bf16,6000,50\niw-llama70-64-fp8,10,\n"
    figures = list(csv.DictReader(text.splitlines()))
    rows = {
        "ao-h100-8b-bf16": prediction("ao-h100-8b-bf16", "5000", "4500", "5500"),
        "iw-llama70-64-fp8": prediction("iw-llama70-64-fp8", "9", "8", "10"),
    }
    first, second = sorted(score.scores(rows, figures, RECIPES), key=lambda s: s.recipe.id)
    assert first.error == pytest.approx(0.2)  # tokens per second: 6000 / 5000
    assert second.error == pytest.approx(-0.1)  # seconds: 9 / 10
    assert (first.within, second.within) == (False, True)
    assert "| all | 2 | 15.0% |" in "\n".join(score.summary([first, second]))
    assert "median error 10.0%" in score.memory_summary([first, second])


def test_a_prediction_without_a_figure_is_not_a_score() -> None:
    rows = {"ao-h100-8b-bf16": prediction("ao-h100-8b-bf16", "5000", "4500", "5500")}
    with pytest.raises(SystemExit, match="no such row"):
        score.scores(rows, [{"id": "another", "value": "1"}], RECIPES)


def test_figures_whose_hash_differs_are_refused(tmp_path) -> None:
    path = sealed(tmp_path, "id,value\nao-h100-8b-bf16,6000\n")
    digest = tmp_path / "measured.sha256"
    digest.write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  measured.csv\n")
    assert score.checked(path, digest).startswith("id,value")
    path.write_text(path.read_text().replace("6000", "6001"))
    with pytest.raises(SystemExit, match="not scored"):
        score.checked(path, digest)
    with pytest.raises(SystemExit, match="not scored"):
        score.checked(path)


SECOND = read_recipes(predict.HERE / "second" / "recipes.csv")


def test_rows_of_the_second_batch_are_expressed() -> None:
    for name, recipe in SECOND.items():
        found = predict.expressed(recipe)
        assert not isinstance(found, NoCase), name
        steps = 2 if name.startswith("rlprime-q30b") else 1  # the sum of two batches
        assert sum(part.weight for part in found.parts) == pytest.approx(steps), name
        assert found.batch == recipe.batch, name


def test_a_kernel_that_a_recipe_states_has_its_own_share_of_the_peak() -> None:
    """FlashAttention 2 on a B200: 0.155 of 2,250 TFLOP/s; other products stay."""
    found = predict.expressed(SECOND["rlprime-q4b-b200-16k"])
    system = load_system("dgx-b200")
    ideal = replace(system.accelerator.kernel, latency=0.0)
    system = replace(
        system, accelerator=replace(system.accelerator, kernel=ideal, launch_overhead=0.0)
    )
    plain = product(8192, 8192, 8192)
    names = replace(plain.tables, ops=("flash_attention",))
    attention = replace(plain, tables=names)
    [timed, *_] = [part.kernels for part in found.parts]
    assert timed is not None
    assert timed(plain, system) == pytest.approx(kernel_seconds(plain, system))
    share = ideal.attention_efficiency * ideal.matmul_efficiency / 0.155
    assert timed(attention, system) == pytest.approx(share * kernel_seconds(attention, system))


def test_packed_samples_attend_to_themselves_only() -> None:
    """16,384 tokens a GPU as eight samples of 2,048, as InternEvo's packed data set has them."""
    [few, *_] = predict.expressed(SECOND["ie-7b-8"]).parts
    assert few.case.run.batch_seq == "mbs=8 accum=1 seq=2048"


def test_a_row_whose_page_has_no_figure_is_not_scored() -> None:
    rows = {"ao-h100-8b-bf16": prediction("ao-h100-8b-bf16", "5000", "4500", "5500")}
    assert score.scores(rows, [{"id": "ao-h100-8b-bf16", "value": ""}], RECIPES) == []


def test_a_mended_recipe_is_shown_next_to_the_sealed_error() -> None:
    rows = {"ao-h100-8b-bf16": prediction("ao-h100-8b-bf16", "5000", "4500", "5500")}
    found = score.scores(rows, [{"id": "ao-h100-8b-bf16", "value": "6000"}], RECIPES)
    again = {name: row | {"value": "7500"} for name, row in rows.items()}
    since = score.scores(again, [{"id": "ao-h100-8b-bf16", "value": "6000"}], RECIPES)
    assert "| +20.0% | -20.0% |" in score.mended(found, since, again)[-1]
    assert "| not expressed | -20.0% |" in score.mended([], since, again)[-1]


def test_nothing_is_predicted_once_the_figures_are_opened(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["predict.py", "prime-q30b"])
    with pytest.raises(SystemExit):
        predict.main()
    assert "figures are opened" in capsys.readouterr().err


def test_products_that_add_gradients_up_need_no_kernel_for_it() -> None:
    """A gradient by a product, converted and added to a sum: no time. Another's sum stays."""
    tables = TableBuilder()
    builder = GraphBuilder(tables)
    wide, short = tensor_type((4, 4), "f32"), tensor_type((4, 4), "bf16")
    left, right, total = (builder.input(tables.type(item)) for item in (short, short, wide))
    source = tables.source(Source(phase=Phase.BACKWARD))

    def compute(op: str, operands: tuple[int, ...], result: TensorType, unit: Unit) -> int:
        work = Work((WorkItem(unit, "f32", 16.0),), 96, 64)
        return builder.node(
            NodeKind.COMPUTE, tables.op(op), operands, [tables.type(result)],
            role=Role.ELEMENTWISE, work=work, source=source,
        )[0]  # fmt: skip

    made = compute("dot_general", (left, right), short, Unit.MATMUL)
    for value in (made, left):
        compute("add", (value, total), wide, Unit.VECTOR)
    graph = with_tables(builder.finish(()), tables.finish())
    assert accumulations(graph) == [1]
    seconds = within_products()(graph, H100)
    assert seconds[1] == 0.0
    assert seconds[2] == kernel_seconds(graph, H100)[2] > 0.0
