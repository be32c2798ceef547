"""Opened runs simulated with today's model: what a change does to their errors.

    python benchmarks/accuracy/blind/again.py benchmarks/accuracy/given           # all of a folder
    python benchmarks/accuracy/blind/again.py benchmarks/accuracy/given ttp- --save before.csv
    python benchmarks/accuracy/blind/again.py benchmarks/accuracy/given --against before.csv

The idea: a folder has recipes and, in a file beside them, what was measured.  Predictions that were
sealed stay as they are; here every recipe is simulated as often as one likes, and nothing is
written but what ``--save`` names.  Errors are those of a step's seconds.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

import accuracy
from cases_of_runs import NoCase
from expressed import Expressed, predicted
from predict import ROOT, expressed
from recipes import RATES, Recipe, read_recipes

from flint.errors import FlintError


def error_of(
    recipe: Recipe, found: Expressed, measured: float, cache: Path
) -> tuple[float, tuple[float, float]]:
    """Error of a step's seconds, relative to the measured ones, and its peaks in GiB: allocated,
    and reserved by PyTorch's allocator.
    """
    step = predicted(found, recipe, cache)
    value = recipe.figure(step.seconds, found.batch)
    longer = measured / value if recipe.metric in RATES else value / measured
    return longer - 1, (step.live / 2**30, step.peak / 2**30)


def read_figures(folder: Path) -> dict[str, tuple[float, str]]:
    """What was measured, and the peak in GiB or "", by id."""
    with (folder / "measured.csv").open(newline="", encoding="utf-8") as file:
        found = {}
        for row in csv.DictReader(file):
            if row["value"]:
                value = float(row["value"]) / (100 if row.get("unit") == "%" else 1)
                peak = row.get("memory_gib") or row.get("peak_memory_GiB") or ""
                found[row["id"]] = value, peak
    return found


def group_of(recipe: Recipe) -> str:
    """What rows are summed up by: how their ids begin."""
    return recipe.id.split("-")[0]


def summary(errors: dict[str, float], recipes: dict[str, Recipe]) -> list[str]:
    """Lines: median and largest errors of all rows and by group."""
    groups: dict[str, list[float]] = {}
    for name, error in errors.items():
        for group in ("all", group_of(recipes[name]), recipes[name].kind):
            groups.setdefault(group, []).append(error)
    lines = []
    for name, some in groups.items():
        sizes = sorted(map(abs, some))
        ninth = statistics.quantiles(sizes, n=10, method="inclusive")[-1] if some[1:] else sizes[0]
        lines.append(
            f"{name:22} {len(some):3}  median {statistics.median(sizes):6.1%}  90th {ninth:6.1%}  "
            f"mean of signed {statistics.fmean(some):+7.1%}  largest {max(some, key=abs):+7.1%}"
        )
    return lines


def main() -> None:
    """Simulate recipes whose figures are open."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("ids", nargs="*", help="how ids begin; all by default")
    parser.add_argument("--recorded", action="store_true", help="capture nothing")
    parser.add_argument("--save", type=Path, help="write the errors into this file")
    parser.add_argument("--against", type=Path, help="errors that an earlier --save wrote")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "accuracy")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    recipes, figures = read_recipes(options.folder / "recipes.csv"), read_figures(options.folder)
    before: dict[str, float] = {}
    if options.against:
        with options.against.open(newline="", encoding="utf-8") as file:
            before = {row["id"]: float(row["error"]) for row in csv.DictReader(file)}
    errors: dict[str, float] = {}
    for name, recipe in recipes.items():
        if name not in figures or not name.startswith(tuple(options.ids) or ""):
            continue
        measured, memory = figures[name]
        found = expressed(recipe)
        if options.recorded and isinstance(found, Expressed):
            cases = [accuracy.recorded(part.case, options.cache) for part in found.parts]
            found = next((case for case in cases if isinstance(case, NoCase)), found)
        if isinstance(found, NoCase):
            print(f"{name:28} - {found.reason}", flush=True)
            continue
        try:
            errors[name], (live, peak) = error_of(recipe, found, measured, options.cache)
        except FlintError as error:
            print(f"{name:28} - {error}", flush=True)
            continue
        was = f"{before[name]:+8.1%} ->" if name in before else ""
        room = (
            f"  peak {live:.1f}, reserved {peak:.1f}, of {memory} GiB"
            if memory and found.memory
            else ""
        )
        print(f"{name:28} {was} {errors[name]:+8.1%}{room}", flush=True)
    print("\n".join(summary(errors, recipes)))
    if options.save:
        with options.save.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("id", "error"))
            writer.writerows((name, f"{error:.5f}") for name, error in errors.items())


if __name__ == "__main__":
    main()
