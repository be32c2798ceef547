"""Simulated against published step times: docs/accuracy/published.md, and the fit behind it.

    python benchmarks/accuracy/accuracy.py            # simulate all rows, write the table
    python benchmarks/accuracy/accuracy.py --fit      # also say which parameters fit best
    python benchmarks/accuracy/accuracy.py --recorded # captures nothing: other rows as on the page

The idea: what the cost model cannot know from datasheets are a few shares of the peaks that
kernels reach.  They are in the accelerators' descriptions, one number for all models, and are
fitted to the runs marked "fit"; all other runs are held out.  Nothing is set per model or per run.

Longer than 300 lines because the fit and the table are of the same simulated rows.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import gpus
import maxtext
from accumulating import within_products
from cases_of_runs import Case, NoCase, extrapolated
from page import DOCS, ROWS, Cells, seconds_on, write_table
from published import Run, read_runs

import flint
from flint.cost.hardware import System
from flint.cost.systems import load_system
from flint.simulation.result import SimulationResult

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FILES = (HERE / "published_steps.csv", HERE / "more_steps.csv")
PAGE = DOCS / "published.md"
#: Parameters that are fitted, with the range that is physical.
FITTED = {
    "matmul_efficiency": (0.3, 0.98),
    "attention_efficiency": (0.2, 1.0),
    "eager_attention_efficiency": (0.1, 1.0),
}
#: Fitted, by how accelerators' names begin. A published share of attention stays as described.
OF_ACCELERATOR = {
    "tpu-v6e": ("matmul_efficiency", "attention_efficiency"),
    "tpu": ("matmul_efficiency",),
    "": ("matmul_efficiency", "eager_attention_efficiency"),
}
#: Share of a product's rate that the Triton port of FlashAttention 1 reached in llm-foundry's runs
#: of 2023, to which it was fitted: 16% of the peak.  An A100's is its description's, 33%.
TRITON = {"h100-sxm": 0.27}
#: Why a run without an earlier capture is omitted, if only captured runs are requested.
NOT_RECORDED = "expressed, but not captured for this page"
#: Accelerators whose runs are halved at random, into a fit and what is held out.
HALVED = ("h100-sxm", "a100-sxm", "h200-sxm")
#: Speeds of kernels during communication that are tried, the same for all TPUs.
BESIDE = (1.0, 0.8, 0.7, 0.6, 0.5, 0.4)


@dataclass(frozen=True, slots=True)
class Row:
    """A run and its result.

    Attributes:
        case: how it is expressed.
        held_out: it was not used in the fit.
        simulated: seconds of a step.
        earlier: they are those of an earlier table.
    """

    case: Case
    held_out: bool
    simulated: float
    earlier: bool = False

    @property
    def error(self) -> float:
        """Relative error of the simulated step."""
        return self.simulated / self.case.measured - 1


def case_of(run: Run) -> Case | NoCase:
    """How a run is expressed, or why it is not."""
    return (maxtext if "TPU" in run.gpu_type else gpus).case_of(run)


def in_fit(case: Case) -> bool:
    """Whether a run is one of those that parameters are fitted to.

    Of v6e the Llama 3.1 recipes, of v5e and v5p the smaller models on one or two slices, of the
    H100 of 500 W the compiled runs; other sources, models, sizes and numbers of slices are held
    out.  Of the other GPUs half of the runs, by a hash of their names, which is not a choice.
    """
    run = case.run
    if case.accelerator in HALVED:
        name = "|".join((run.source, run.model, run.gpus, run.parallelism, run.batch_seq))
        return hashlib.sha256(name.encode()).digest()[0] % 2 == 0
    if run.source.startswith("tpu-recipes trillium"):
        return run.model.startswith("llama3.1-")
    if (
        run.source.startswith(("MaxText configs/v5e READM", "MaxText configs/v5p READM"))
        and "other" not in run.source
    ):
        few = {"tpu-v5e": ("256", "512"), "tpu-v5p": ("64", "128")}[case.accelerator]
        return run.gpus in few and run.model.split()[-1] in ("16B", "32B", "64B")
    return run.source.startswith("torchtitan benchmarks") and "compile" in run.parallelism


def of_library(case: Case) -> bool:
    """Whether attention is cuDNN's, where the program calls PyTorch's: a run says so, or it is
    opened, though torch.compile did not make it, and stands for a library's fused kernels."""
    return case.cudnn or (case.attention == "fused" and "compile" not in case.run.parallelism)


def system_of(case: Case) -> System:
    """The system of a case; slices of a pod are joined by the data-centre network."""
    system = load_system(case.system)
    share = TRITON.get(case.accelerator) if case.triton else None
    if of_library(case):
        share = system.accelerator.kernel.attention_efficiency
    if share:
        kinds = ("flash", "eager", "efficient")
        shares = dict.fromkeys((f"{kind}_attention_efficiency" for kind in kinds), share)
        system = with_parameters(shares)(system)
    if not case.slice:
        return system
    inner, *outer = system.network
    return replace(system, network=(replace(inner, size=case.slice), *outer))


def folders_of(case: Case, cache: Path) -> dict[int, Path]:
    """Where the captured workloads are kept, by their number of batches."""
    found = {}
    for count in case.recorded:
        key = case.key if len(case.recorded) == count == 1 else f"{case.key} x {count}"
        key = re.sub(" at 0x[0-9a-f]+", "", key)  # functions are elsewhere in every process
        found[count] = cache / hashlib.sha256(key.encode()).hexdigest()[:16]
    return found


def workloads_of(case: Case, cache: Path) -> dict[int, Any]:
    """The captured workloads by their number of batches, from the cache where they are there."""
    found = {}
    for count, folder in folders_of(case, cache).items():
        if not folder.exists():
            case.capture(count).save(folder)
        found[count] = flint.load(folder)
    return found


def recorded(case: Case | NoCase, cache: Path) -> Case | NoCase:
    """A case whose workloads are in the cache, or the reason that they are not."""
    if isinstance(case, NoCase) or all(map(Path.exists, folders_of(case, cache).values())):
        return case
    return NoCase(NOT_RECORDED)


def results_of(
    workloads: dict[int, Any], case: Case, system: System, **options: Any
) -> dict[int, SimulationResult]:
    """A case's steps, simulated, by their number of batches."""
    if case.accumulates:
        options["kernels"] = within_products(options.get("kernels"))
    return {
        count: workload.simulate(system, attention=case.attention, passes=case.passes, **options)
        for count, workload in workloads.items()
    }


def seconds_of(workloads: dict[int, Any], case: Case, system: System) -> float:
    """Seconds of a case's step."""
    results = results_of(workloads, case, system)
    seconds = {count: float(result.step_seconds) for count, result in results.items()}
    return extrapolated(seconds, case.batches)


def simulated(case: Case, cache: Path, change: Callable[[System], System] = lambda s: s) -> float:
    """Seconds of a step."""
    return seconds_of(workloads_of(case, cache), case, change(system_of(case)))


def with_parameters(values: dict[str, float]) -> Callable[[System], System]:
    """Replaces a system's kernel parameters."""

    def change(system: System) -> System:
        accelerator = system.accelerator
        kernel = replace(accelerator.kernel, **values)  # type: ignore[arg-type]
        return replace(system, accelerator=replace(accelerator, kernel=kernel))

    return change


class Loss:
    """Mean square of log(simulated / measured) over some cases, by kernel parameters.

    Every source weighs the same, however many runs it has published: they err together.
    """

    def __init__(self, cases: Sequence[Case], cache: Path) -> None:
        self._cases = [(workloads_of(case, cache), system_of(case), case) for case in cases]

    def __call__(self, values: dict[str, float]) -> float:
        """The loss with these parameters."""
        change = with_parameters(values)
        by_source: dict[str, list[float]] = {}
        for found, system, case in self._cases:
            seconds = seconds_of(found, case, change(system))
            squares = by_source.setdefault(case.run.source, [])
            squares.append(math.log(seconds / case.measured) ** 2)
        return statistics.fmean(map(statistics.fmean, by_source.values()))

    def least(self, values: dict[str, float], name: str, steps: int = 8) -> dict[str, float]:
        """The parameters with the best value of one of them, by thirds of its range."""
        low, high = FITTED[name]
        for _ in range(steps):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            if self({**values, name: left}) < self({**values, name: right}):
                high = right
            else:
                low = left
        return {**values, name: round((low + high) / 2, 2)}


def fit(by_accelerator: dict[str, list[Case]], cache: Path) -> None:
    """Print the parameters with the least loss.

    The speed during communication is one number for all TPUs, whose rows are fitted together; the
    shares of the peaks differ by accelerator.
    """
    losses = {name: Loss(cases, cache) for name, cases in by_accelerator.items()}
    best = (math.inf, 1.0)
    for beside in BESIDE:
        total = 0.0
        for name in (name for name in losses if name.startswith("tpu")):
            start = {"beside_communication": beside}
            found = losses[name].least(start, "matmul_efficiency", 6)
            total += losses[name](found) * len(by_accelerator[name])
        print(f"beside_communication {beside}: sum of squares {total:.4f}")
        best = min(best, (total, beside))
    for name, loss in losses.items():
        values = {"beside_communication": best[1]} if name.startswith("tpu") else {}
        parameters = next(OF_ACCELERATOR[key] for key in OF_ACCELERATOR if name.startswith(key))
        for parameter in 2 * parameters:
            values = loss.least(values, parameter)
        print(f"{name}: {len(by_accelerator[name])} rows: {values}")


def cells(case: Case) -> Cells:
    """The cells that name a run: what, on which devices, and the measured seconds."""
    run = case.run
    extra = "" if "TPU" in run.gpu_type else f" {run.parallelism}; {run.batch_seq}"
    published = f"[{run.model}]({run.url.split()[0]}){extra}"
    return published, f"{run.gpus.split()[0]} {case.accelerator}", f"{case.measured:.3f}"


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown lines."""
    lines = [
        "| run | devices | measured s | simulated s | error | | expressed as |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        note = f"; {row.case.note}" if row.case.note else ""
        what = "held out" if row.held_out else "fit"
        lines.append(
            f"| {' | '.join(cells(row.case))} | {row.simulated:.3f} | {row.error:+.1%} | {what} "
            f"| {row.case.expressed}{note} |"
        )
    return lines


def age(rows: Sequence[Row]) -> list[str]:
    """A line that says which rows are older, if some are."""
    older = Counter(row.case.accelerator for row in rows if row.earlier)
    if not older:
        return []
    named = ", ".join(f"{count} of {name}" for name, count in sorted(older.items()))
    return ["", f"Simulated earlier than the others, and not again: {named}."]


def summary(rows: Sequence[Row]) -> list[str]:
    """Median and largest errors, of all rows and by part."""
    parts: dict[str, list[Row]] = {
        "all": list(rows),
        "held out": [row for row in rows if row.held_out],
        "fit": [row for row in rows if not row.held_out],
    }
    for name in sorted({row.case.accelerator for row in rows}):
        parts[name] = [row for row in rows if row.case.accelerator == name]
        held_out = [row for row in parts[name] if row.held_out]
        if 0 < len(held_out) < len(parts[name]):
            parts[f"{name}, held out"] = held_out
    lines = ["| rows | number | median error | mean | largest |", "|---|---|---|---|---|"]
    for name, some in parts.items():
        if some:
            errors = sorted(abs(row.error) for row in some)
            lines.append(
                f"| {name} | {len(some)} | {statistics.median(errors):.1%} "
                f"| {statistics.fmean(errors):.1%} | {errors[-1]:.1%} |"
            )
    return lines


def main() -> None:
    """Simulate all rows."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--fit", action="store_true", help="say which parameters fit best")
    parser.add_argument("--recorded", action="store_true", help="capture nothing")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "accuracy")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    runs = [run for file in FILES for run in read_runs(file) if _timed(run)]
    found = [case_of(run) for run in runs]
    if options.fit:
        chosen: dict[str, list[Case]] = {}
        for case in found:
            case = recorded(case, options.cache) if options.recorded else case
            if isinstance(case, Case) and in_fit(case):
                chosen.setdefault(case.accelerator, []).append(case)
        fit(chosen, options.cache)
    known = seconds_on(PAGE)
    rows, left = [], []
    for run, case in zip(runs, found, strict=True):
        earlier = options.recorded and isinstance(recorded(case, options.cache), NoCase)
        if earlier and isinstance(case, Case):
            seconds = next(known.get(cells(case), iter(())), None)
        else:
            seconds = simulated(case, options.cache) if isinstance(case, Case) else None
        if isinstance(case, Case) and seconds is not None:
            rows.append(Row(case, not in_fit(case), seconds, earlier))
            continue
        reason = case.reason if isinstance(case, NoCase) else NOT_RECORDED
        device = run.gpu_type.split(" (")[0]
        left.append(f"| {run.model} | {run.gpus.split()[0]} {device} | {reason} |")
    lines = [*summary(rows), *age(rows), "", *table(rows), "", "Left out:", ""]
    lines += ["| run | devices | why |", "|---|---|---|", *left]
    print("\n".join(lines))
    write_table(PAGE, ROWS, lines)


def _timed(run: Run) -> bool:
    """Runs that say only how much memory they took are none of ours."""
    return set(run.figures) != {"peak_memory_GiB"}


if __name__ == "__main__":
    main()
