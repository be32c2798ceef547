"""Published runs: figures converted by hand, nothing set per run, one row from end to end."""

from __future__ import annotations

import csv
import io
import re
import statistics
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy"))

import accuracy
import maxtext
from cases_of_runs import Case
from published import group, maxtext_flops, read_runs

ROOT = Path(__file__).parent.parent
RUNS = [run for file in accuracy.FILES for run in read_runs(file)]
CASES = [case for case in map(accuracy.case_of, RUNS) if isinstance(case, Case)]


def runs(metrics: str):
    text = "source,model,gpus,gpu_type,parallelism,batch_seq,precision,metric,value,url\n"
    rows = [f"s,m,8,H100,FSDP,b,bf16,{metric},u" for metric in metrics.split()]
    return group(csv.DictReader(io.StringIO(text + "\n".join(rows))))


def test_rows_of_one_run_are_one_run_and_ranges_are_no_figures() -> None:
    (run,) = runs("step_time_s,3.5 tokens/s/device,7031 MFU_%,47-48")
    assert run.figures == {"step_time_s": 3.5, "tokens/s/device": 7031.0}


@pytest.mark.parametrize(
    ("metrics", "seconds"),
    [
        ("tokens/s/GPU,100 step_time_s,3.5", 3.5),
        ("iteration_time_s,1.1", 1.1),
        ("tokens/s/GPU,8192", 2.0),  # 16384 tokens
        ("TFLOP/s/chip,100 MFU_%,50", 4.0),  # 4e14 FLOPs at 1e14 per second
        ("MFU_%,50", 8.0),  # 4e14 FLOPs at half of 1e14 per second
        ("peak_memory_GiB,80", None),
    ],
)
def test_the_most_direct_figure_says_how_long_a_step_took(metrics, seconds) -> None:
    (run,) = runs(metrics)
    assert run.step_seconds(16384, 4e14, 1e14) == seconds


def test_flops_are_counted_as_the_publisher_does() -> None:
    """Logs with a step time and TFLOP/s say what was counted: both multiplied."""
    checked = 0
    for case in CASES:
        figures = case.run.figures
        if "step_time_s" in figures and "TFLOP/s/device" in figures:
            counted = figures["step_time_s"] * figures["TFLOP/s/device"] * 1e12
            recipe = maxtext.TRILLIUM[case.run.model, int(case.run.gpus)]
            config = maxtext.MODELS[case.run.model]
            heads = config.heads
            flops = maxtext_flops(
                layers=config.layers, width=config.width, heads=heads.queries, keys=heads.keys,
                size=heads.size, hidden=config.hidden, products=3 if config.gated else 2,
                vocabulary=config.vocabulary, sequence=config.sequence, sequences=recipe.batch,
            )  # fmt: skip
            assert flops == pytest.approx(counted, rel=0.01), case.run.model
            checked += 1
    assert checked == 8


@pytest.mark.parametrize("scale", [16, 32, 64, 128, 512, 1024])
def test_scaled_models_have_the_parameters_of_their_names(scale) -> None:
    """Within the sixth that MaxText's rounding of sizes leaves."""
    config = maxtext.scaled(scale)
    inner = config.heads.queries * config.heads.size
    block = 4 * config.width * inner + 3 * config.width * config.hidden
    parameters = config.layers * block + 2 * config.vocabulary * config.width
    assert parameters == pytest.approx(scale * 1e9, rel=1 / 6)


def test_all_runs_on_an_accelerator_have_the_same_parameters() -> None:
    by_accelerator: dict[str, set[object]] = {}
    for case in CASES:
        found = accuracy.system_of(case)
        tiers = tuple((tier.bandwidth, tier.efficiency, tier.latency) for tier in found.network)
        by_accelerator.setdefault(case.accelerator, set()).add((found.accelerator.kernel, tiers))
    assert {name: len(some) for name, some in by_accelerator.items()} == dict.fromkeys(
        by_accelerator, 1
    )


def test_a_row_from_end_to_end(tmp_path) -> None:
    """Mistral 7B on 8 chips, which no parameter is fitted to."""
    case = next(case for case in CASES if case.run.model == "mistral-7b")
    assert not accuracy.in_fit(case)
    assert case.measured == 6.32
    row = accuracy.Row(case, True, accuracy.simulated(case, tmp_path))
    assert abs(row.error) < 0.3
    assert f"{row.error:+.1%} | held out" in "\n".join(accuracy.table([row]))


def test_the_page_is_true_to_its_rows() -> None:
    """Errors follow from the seconds beside them, the median from the errors."""
    text = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| ([\d.]+) \| ([\d.]+) \| ([+-][\d.]+)% \|", text)
    assert len(rows) == len(CASES)
    errors = []
    for measured, simulated, error in rows:
        errors.append(abs(float(simulated) / float(measured) - 1) * 100)
        assert abs(float(error)) == pytest.approx(errors[-1], abs=0.1)
    stated = re.search(r"\| all \| (\d+) \| ([\d.]+)% \|", text)
    assert stated and int(stated[1]) == len(rows)
    assert float(stated[2]) == pytest.approx(statistics.median(errors), abs=0.1)
    assert max(errors) < 30
