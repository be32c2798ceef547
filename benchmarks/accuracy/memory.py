"""Simulated peaks of memory against published ones, and whether completed runs are predicted to
fit.

    python benchmarks/accuracy/memory.py                     # all runs that are captured
    python benchmarks/accuracy/memory.py --capture llama3-7b # and those whose name has this word

The idea: a published step time shows that the step fitted, so that a verdict "does not fit" is
wrong; of some runs the peak itself is published: what PyTorch reserved or what was allocated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from accuracy import FILES, ROOT, case_of, folders_of, system_of
from cases_of_runs import Case, NoCase
from published import Run, read_runs

import flint

GIB = 2**30
#: Metrics of peaks: ``torch.cuda.max_memory_reserved`` and ``max_memory_allocated``.
RESERVED, ALLOCATED = "peak_memory_GiB", "peak_allocated_GiB"


def in_bf16(run: Run) -> Case | NoCase:
    """A run's case; one in FP8 with products in bf16: what it keeps are their results, in bf16
    both ways (``aten.mm`` of float8 tensors is what selective checkpointing sees)."""
    if not run.precision.startswith("float8"):
        return case_of(run)
    case = case_of(replace(run, precision="bf16"))
    if isinstance(case, NoCase):
        return case
    return replace(case, run=run, expressed=f"{case.expressed}, products in bf16")


def is_named(case: Case, words: Sequence[str]) -> bool:
    """Whether one of these words is in what a run is called: its source, model, split or key."""
    run = case.run
    name = " ".join((run.source, run.model, run.parallelism, run.batch_seq, case.key))
    return any(word in name for word in words)


def row(case: Case, cache: Path) -> str:
    """A line of the table."""
    few = min(case.recorded)
    folder = folders_of(case, cache)[few]
    if not folder.exists():
        case.capture(few).save(folder)
    result = flint.load(folder).simulate(system_of(case), attention=case.attention)
    reserved = result.peak_memory_bytes
    fullest = max((item.memory for item in result.programs), key=lambda held: sum(held.values()))
    free = fullest.get("free blocks of the allocator", 0)
    published, error = "", ""
    for metric, bytes_ in ((RESERVED, reserved), (ALLOCATED, reserved - free)):
        if metric in case.run.figures:
            figure = case.run.figures[metric]
            published = f"{figure} {'allocated' if metric == ALLOCATED else 'reserved'}"
            error = f"{bytes_ / GIB:.1f}, {bytes_ / GIB / figure - 1:+.1%}"
    verdict = "fits" if result.fits else "**too large**"
    return (
        f"| {case.run.model} {case.run.parallelism}; {case.run.batch_seq} "
        f"| {case.run.gpus.split()[0]} {case.accelerator} | {case.expressed} "
        f"| {result.peak_memory_bytes / GIB:.1f} | {result.reserve_bytes / GIB:.1f} "
        f"| {result.memory_bytes / GIB:.1f} | {verdict} | {published} | {error} |"
    )


def main() -> None:
    """Print the table of the runs that are captured."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--capture", nargs="*", default=(), help="capture runs whose names have one of these words"
    )
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "accuracy")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    print("| run | devices | expressed as | GiB | beside | of | verdict | published | error |")
    print("|---|---|---|---|---|---|---|---|---|")
    for run in (run for file in FILES for run in read_runs(file)):
        case = in_bf16(run) if set(run.figures) - {RESERVED, ALLOCATED} else None
        if not isinstance(case, Case) or "offloaded" in case.note:
            continue
        first = folders_of(case, options.cache)[min(case.recorded)]
        if first.exists() or is_named(case, options.capture):
            print(row(case, options.cache), flush=True)


if __name__ == "__main__":
    main()
