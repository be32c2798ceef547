"""Predictions of the blind test: each recipe simulated, before its figure is looked up.

    python benchmarks/accuracy/blind/predict.py              # all rows that have none yet
    python benchmarks/accuracy/blind/predict.py ao- tt-gb200 # those whose ids begin so
    python benchmarks/accuracy/blind/predict.py --list       # how each is expressed; no simulation
    python benchmarks/accuracy/blind/predict.py --capture    # what the predictions need
    python benchmarks/accuracy/blind/predict.py --batch benchmarks/accuracy/blind/second
    python benchmarks/accuracy/blind/predict.py --again --shallow ao-   # new seconds, old peaks

The idea: a prediction is made once.  A row that has one is never simulated again, so that what
was known when it was made is what git says of its commit; a row that could not be expressed may be
predicted later.  Figures are in a separate file, whose hash is next to this one.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import functools
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

import accuracy
import jax_rows
import torch_rows
from cases_of_runs import NoCase
from expressed import Expressed, predicted
from recipes import HERE, RATES, Recipe, read_recipes
from trainers import READ, first

from flint.errors import FlintError

ROOT = HERE.parents[2]
PREDICTIONS = "predictions.csv"
#: Rows whose recipes were corrected after they were scored.
MENDED = "mended.csv"
COLUMNS = (
    "id", "accelerator", "devices", "kind", "metric", "step_seconds", "low_seconds",
    "high_seconds", "value", "low", "high", "peak_GiB", "fits", "date", "commit", "differs",
    "left_out",
)  # fmt: skip
#: Trainers of JAX; of all others PyTorch's.
JAX = ("MaxText", "MaxDiffusion", "PyTorch/XLA", "AXLearn", "Levanter")


def expressed(recipe: Recipe) -> Expressed | NoCase:
    """How a recipe is expressed, or the reason why it is not."""
    rows = jax_rows if recipe.framework.startswith(JAX) else torch_rows
    found = rows.expressed(recipe)
    read = first(READ, recipe.id, 0.0)
    if isinstance(found, NoCase) or not read:
        return found
    tokens = recipe.batch // recipe.devices * recipe.sequence
    differs = f"{found.differs}; the host reads {tokens:,} positions one by one"
    return replace(found, host=read * tokens, differs=differs)


def row_of(recipe: Recipe, found: Expressed | NoCase, cache: Path) -> dict[str, str]:
    """A row of the table of predictions.

    Args:
        recipe: the predicted recipe.
        found: how it is expressed.
        cache: folder of captures.
    """
    row = dict.fromkeys(COLUMNS, "") | {
        "id": recipe.id,
        "accelerator": recipe.accelerator.split(" (")[0],
        "devices": str(recipe.devices),
        "kind": recipe.kind,
        "metric": recipe.metric,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
    }
    if isinstance(found, NoCase):
        return row | {"left_out": found.reason}
    step = predicted(found, recipe, cache)
    least, most = step.spread.bounds(step.seconds)
    bounds = low, middle, high = least, step.seconds, most
    values = [recipe.figure(seconds, found.batch) for seconds in bounds]
    least, value, most = reversed(values) if recipe.metric in RATES else values
    row |= {
        "step_seconds": f"{middle:.5g}",
        "low_seconds": f"{low:.5g}",
        "high_seconds": f"{high:.5g}",
        "value": f"{value:.5g}",
        "low": f"{least:.5g}",
        "high": f"{most:.5g}",
        "differs": found.differs,
    }
    if found.memory:
        row |= {"peak_GiB": f"{step.peak / 2**30:.1f}", "fits": _yes(step.peak <= step.room)}
    return row


def _yes(value: bool) -> str:
    return "yes" if value else "no"


@functools.cache
def commit() -> str:
    """The commit that predictions are made at; "+" where other files than theirs differ.

    Asked for once, when the program is read: later commits are not what it runs.
    """
    git = ["git", "-C", str(ROOT)]
    name = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True)
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
    others = [
        line for line in changed.stdout.splitlines() if not line.endswith((PREDICTIONS, MENDED))
    ]
    return name.stdout.strip() + ("+" if others else "")


def read_predictions(path: Path = HERE / PREDICTIONS) -> dict[str, dict[str, str]]:
    """The rows of the table by their ids; none where there is no table yet."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def add_prediction(
    row: dict[str, str], order: Iterable[str], path: Path, instead: bool = False
) -> None:
    """Add a row to the table, in the order of the recipes; a row that has a prediction stays,
    unless the new one is to be there ``instead``.

    Others may add rows at the same time: the table is read and replaced under a lock.
    """
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        rows = {row["id"]: row} | {
            name: old
            for name, old in read_predictions(path).items()
            if name != row["id"] or (old["step_seconds"] and not instead)
        }
        whole = path.with_suffix(".part")
        with whole.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows[name] for name in order if name in rows)
        whole.replace(path)
    finally:
        os.close(folder)


def main() -> None:
    """Predict rows that have no prediction."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("ids", nargs="*", help="how ids begin; all by default")
    parser.add_argument("--list", action="store_true", help="how rows are expressed, no more")
    parser.add_argument("--capture", action="store_true", help="capture what is missing, no more")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "accuracy")
    parser.add_argument("--again", action="store_true", help=f"into {MENDED}: recipes were mended")
    parser.add_argument("--shallow", action="store_true", help="again, by steps of few layers")
    parser.add_argument("--batch", type=Path, default=HERE, help="folder of the recipes")
    options = parser.parse_args()
    if options.again and not options.ids:
        parser.error("--again: of which rows?")
    if options.shallow and not options.again:
        parser.error("--shallow: only with --again")
    file = options.batch / (MENDED if options.again else PREDICTIONS)
    recipes, rows = read_recipes(options.batch / "recipes.csv"), read_predictions(file)
    opened = (options.batch / "measured.csv").exists()
    if opened and not (options.list or options.again):
        parser.error(f"{options.batch}: its figures are opened, nothing more can be predicted")
    options.cache.mkdir(parents=True, exist_ok=True)
    commit()
    for name, recipe in recipes.items():
        old = rows.get(name, {})
        known = old.get("step_seconds") and not options.shallow
        if not name.startswith(tuple(options.ids) or "") or known:
            continue
        found = expressed(replace(recipe, memory=False) if options.shallow else recipe)
        if options.list:
            text = found.reason if isinstance(found, NoCase) else found.differs
            print(f"{name}: {'-' if isinstance(found, NoCase) else '+'} {text}")
            continue
        try:
            if options.capture:
                for part in () if isinstance(found, NoCase) else found.parts:
                    accuracy.workloads_of(part.case, options.cache)
                print(name, flush=True)
                continue
            row = row_of(recipe, found, options.cache)
        except FlintError as error:
            print(f"{name}: not predicted: {error}", flush=True)
            continue
        if options.shallow:  # the line through shallow steps lies below a peak
            row |= {key: old.get(key, "") for key in ("peak_GiB", "fits")}
        add_prediction(row, recipes, file, instead=options.shallow)
        print(name, row["step_seconds"], row["left_out"], flush=True)


if __name__ == "__main__":
    main()
