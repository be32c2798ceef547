"""Published runs: figures converted by hand, nothing set per run, one row from end to end."""

from __future__ import annotations

import csv
import io
import re
import statistics
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks" / "accuracy"))

import accuracy
import maxtext
from cases_of_runs import Case, extrapolated
from page import DOCS, ROWS, seconds_on, write_table
from published import group, maxtext_flops, read_runs

from flint.cost.systems import load_system

ROOT = Path(__file__).parent.parent
RUNS = [run for file in accuracy.FILES for run in read_runs(file)]
CASES = [case for case in map(accuracy.case_of, RUNS) if isinstance(case, Case)]


def runs(metrics: str):
    text = "source,model,gpus,gpu_type,parallelism,batch_seq,precision,metric,value,url\n"
    rows = [f"s,m,8,H100,FSDP,b,bf16,{metric},u" for metric in metrics.split()]
    return group(csv.DictReader(io.StringIO(text + "\n".join(rows))))


def test_rows_of_one_run_are_one_run_and_ranges_are_not_figures() -> None:
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
            mixture = maxtext.MIXTURES.get(case.run.model)
            config = mixture or maxtext.MODELS[case.run.model]
            heads = config.heads
            experts = mixture.experts if mixture else None
            flops = maxtext_flops(
                layers=config.layers, width=config.width, heads=heads.queries, keys=heads.keys,
                size=heads.size,
                hidden=experts.chosen * experts.hidden if experts else config.hidden,
                products=3 if mixture or config.gated else 2,
                vocabulary=config.vocabulary, sequence=config.sequence, sequences=recipe.batch,
            )  # fmt: skip
            assert flops == pytest.approx(counted, rel=0.01), case.run.model
            checked += 1
    assert checked == 9


@pytest.mark.parametrize("scale", [16, 32, 64, 128, 512, 1024])
def test_scaled_models_have_the_parameters_of_their_names(scale) -> None:
    """Within the sixth that MaxText's rounding of sizes leaves."""
    config = maxtext.scaled(scale)
    inner = config.heads.queries * config.heads.size
    block = 4 * config.width * inner + 3 * config.width * config.hidden
    parameters = config.layers * block + 2 * config.vocabulary * config.width
    assert parameters == pytest.approx(scale * 1e9, rel=1 / 6)


def test_all_runs_on_an_accelerator_have_the_same_parameters() -> None:
    """Of kernels, where attention is the same one; of the network, on the same system."""
    kernels: dict[object, set[object]] = {}
    networks: dict[object, set[object]] = {}
    for case in CASES:
        found = accuracy.system_of(case)
        tiers = tuple((tier.bandwidth, tier.efficiency, tier.latency) for tier in found.network)
        kind = case.accelerator, case.triton, accuracy.of_library(case)
        kernels.setdefault(kind, set()).add(found.accelerator.kernel)
        networks.setdefault(case.system, set()).add(tiers)
    for found in (kernels, networks):
        assert {name: len(some) for name, some in found.items()} == dict.fromkeys(found, 1)


@pytest.mark.parametrize(
    "file", sorted(Path(accuracy.__file__).parent.glob("*.toml")), ids=lambda file: file.stem
)
def test_the_clusters_of_published_runs_can_run_whole_programs(file) -> None:
    """Programs copy their batches from the host, which recipes leave out."""
    assert load_system(file).accelerator.host_bandwidth in (32e9, 64e9)


def test_a_long_step_lies_on_the_line_through_two_short_ones() -> None:
    """A pipeline of 4 stages, 2 s each and way: m microbatches last 2 * 2 * (m + 3) s."""
    seconds = {8: 44.0, 16: 76.0}
    assert extrapolated(seconds, 64) == 2 * 2 * (64 + 3)
    assert extrapolated(seconds, 16) == 76.0


@pytest.mark.parametrize(
    ("model", "sequence", "tokens", "mfu"),
    [
        # torchtitan's docs/performance.md: tokens per second and device, MFU, of the same run.
        ("llama3-8b", 8192, 2904, 0.568),
        ("llama3-70b", 8192, 331, 0.517),
        ("llama2-13b", 4096, 2162, 0.611),
        ("llama2-70b", 4096, 355, 0.508),
    ],
)
def test_flops_of_a_token_are_those_behind_a_published_mfu(model, sequence, tokens, mfu) -> None:
    from torch_cases import MODELS, model_flops

    config = replace(MODELS[model], sequence=sequence)
    assert model_flops(config) * tokens / 312e12 == pytest.approx(mfu, rel=0.01)


def test_half_of_the_runs_on_gpus_are_held_out_whatever_their_results() -> None:
    """By names alone: a run with another result is on the same side."""
    for name in accuracy.HALVED:
        cases = [case for case in CASES if case.accelerator == name]
        held_out = [case for case in cases if not accuracy.in_fit(case)]
        assert 0.35 < len(held_out) / len(cases) < 0.65
        for case in cases:
            assert accuracy.in_fit(replace(case, measured=1.0)) == accuracy.in_fit(case)


def test_a_row_from_end_to_end(tmp_path) -> None:
    """Mistral 7B on 8 chips, which no parameter is fitted to."""
    case = next(case for case in CASES if case.run.model == "mistral-7b")
    assert not accuracy.in_fit(case)
    assert case.measured == 6.32
    row = accuracy.Row(case, True, accuracy.simulated(case, tmp_path))
    assert abs(row.error) < 0.3
    assert f"{row.error:+.1%} | held out" in "\n".join(accuracy.table([row]))


def test_the_page_is_true_to_its_rows() -> None:
    """Errors follow from the seconds beside them, the median from the errors; a reason stands for
    every error beyond 30%."""
    text = (DOCS / "published.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| ([\d.]+) \| ([\d.]+) \| ([+-][\d.]+)% \|", text)
    assert len(rows) + text.count(accuracy.NOT_RECORDED) == len(CASES)
    errors = []
    for measured, simulated, error in rows:
        errors.append(abs(float(simulated) / float(measured) - 1) * 100)
        rounded = 0.1 + 0.1 / float(measured)  # of an error in percent, of milliseconds
        assert abs(float(error)) == pytest.approx(errors[-1], abs=rounded)
    stated = re.search(r"\| all \| (\d+) \| ([\d.]+)% \|", text)
    assert stated and int(stated[1]) == len(rows)
    assert float(stated[2]) == pytest.approx(statistics.median(errors), abs=0.1)
    _, _, reasons = text.partition("## Beyond 30%")
    beyond, _, _ = reasons.partition("\n## ")
    assert len(re.findall(r"^\| .* \| [+-][\d.]+% \| .+ \|$", beyond, re.M)) == sum(
        error > 30 for error in errors
    )


def test_the_page_tells_a_run_s_seconds_and_takes_new_rows(tmp_path) -> None:
    """Runs that are named alike, in the page's order; what surrounds the table stays."""
    page = tmp_path / "accuracy.md"
    page.write_text("before\n<!-- rows: begin -->\nold\n<!-- rows: end -->\nafter\n")
    case = CASES[0]
    rows = [accuracy.Row(case, False, seconds) for seconds in (1.25, 2.5)]
    write_table(page, ROWS, accuracy.table(rows))
    assert list(seconds_on(page)[accuracy.cells(case)]) == [1.25, 2.5]
    text = page.read_text()
    assert "old" not in text and text.startswith("before\n") and text.endswith("-->\nafter\n")


def test_rows_of_an_earlier_table_are_counted() -> None:
    """By accelerator; nothing is said if all are simulated."""
    new, old = (accuracy.Row(CASES[0], False, 1.0, earlier) for earlier in (False, True))
    assert accuracy.age([new]) == []
    assert f"1 of {CASES[0].accelerator}" in accuracy.age([new, old])[1]
