"""Scores of the blind test: predictions against the figures, once these are opened.

    python benchmarks/accuracy/blind/score.py measured.csv            # print the table
    python benchmarks/accuracy/blind/score.py measured.csv --page     # and write it into the page

The idea: the file of figures is refused unless its SHA-256 was committed with the predictions.  It
has a row per id with the figure in the row's own metric, and the peak memory in GiB where that is
published.  An error is that of the step's seconds, whatever the metric: +10 % is a step that was
predicted to take 10 % longer than it did.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from page import DOCS, write_table
from recipes import HERE, RATES, Recipe, read_recipes

HASH = HERE / "measured.sha256"
PAGE = DOCS / "blind.md"
#: Columns of the figures: the first of these that the file has.
VALUES = ("value", "measured", "measured_value", "figure")
MEMORY = ("peak_memory_GiB", "peak_memory_gib", "memory_GiB", "memory_gib", "peak_GiB")


@dataclass(frozen=True, slots=True)
class Score:
    """A prediction with its figure.

    Attributes:
        recipe: the row.
        accelerator, kind: groups that it counts in.
        predicted, measured: in the row's metric.
        error: of the step's seconds, relative to the measured ones.
        within: the figure lies in the predicted range.
        peak, measured_peak: GiB; None where either is unknown.
        fits: as predicted; None if unknown.
    """

    recipe: Recipe
    accelerator: str
    kind: str
    predicted: float
    measured: float
    error: float
    within: bool
    peak: float | None
    measured_peak: float | None
    fits: bool | None


def checked(path: Path, hash_file: Path = HASH) -> str:
    """The text of the file of figures.

    Raises:
        SystemExit: it is not the file whose hash was committed.
    """
    content = path.read_bytes()
    expected = hash_file.read_text(encoding="utf-8").split()[0]
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise SystemExit(f"{path}: SHA-256 {found}, but {hash_file} says {expected}: not scored")
    return content.decode("utf-8")


def scores(
    predictions: dict[str, dict[str, str]], figures: Sequence[dict[str, str]],
    recipes: dict[str, Recipe],
) -> list[Score]:  # fmt: skip
    """Predictions joined with figures, in the order of the recipes, without rows that have no
    figure.

    Raises:
        SystemExit: a prediction without a figure, or figures without a column for them.
    """
    value = _column(figures, VALUES)
    memory = _column(figures, MEMORY, required=False)
    by_id = {row["id"]: row for row in figures}
    found = []
    for name, recipe in recipes.items():
        row = predictions.get(name, {})
        if not row.get("step_seconds"):
            continue
        if name not in by_id:
            raise SystemExit(f"{name} was predicted, and the file of figures has no such row")
        if not by_id[name][value]:
            continue
        percent = by_id[name].get("unit") == "%"
        measured = float(by_id[name][value]) / (100 if percent else 1)
        predicted = float(row["value"])
        rate = recipe.metric in RATES
        longer = measured / predicted if rate else predicted / measured
        found.append(
            Score(
                recipe=recipe,
                accelerator=row["accelerator"].removesuffix(" HBM3"),
                kind=row["kind"],
                predicted=predicted,
                measured=measured,
                error=longer - 1,
                within=float(row["low"]) <= measured <= float(row["high"]),
                peak=_number(row["peak_GiB"]),
                measured_peak=_number(by_id[name].get(memory or "", "")),
                fits={"yes": True, "no": False}.get(row["fits"]),
            )
        )
    return found


def _column(
    rows: Sequence[dict[str, str]], names: Sequence[str], required: bool = True
) -> str | None:
    there = list(rows[0]) if rows else []
    found = next((name for name in names if name in there), None)
    if found is None and required:
        raise SystemExit(f"the figures have the columns {', '.join(there)}: none of {names}")
    return found


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def summary(found: Sequence[Score]) -> list[str]:
    """Markdown: errors by accelerator and by kind."""
    lines = [
        "| rows | number | median | 90th percentile | largest | in range |",
        "|---|---|---|---|---|---|",
    ]
    groups: list[tuple[str, Callable[[Score], bool]]] = [("all", lambda score: True)]
    for name in sorted({score.accelerator for score in found}):
        groups.append((name, lambda score, name=name: score.accelerator == name))
    for name in sorted({score.kind for score in found}):
        groups.append((name, lambda score, name=name: score.kind == name))
    for name, belongs in groups:
        some = [score for score in found if belongs(score)]
        if not some:
            continue
        errors = sorted(abs(score.error) for score in some)
        ninth = (
            statistics.quantiles(errors, n=10, method="inclusive")[-1] if some[1:] else errors[0]
        )
        largest = max((score.error for score in some), key=abs)
        inside = sum(score.within for score in some)
        lines.append(
            f"| {name} | {len(some)} | {statistics.median(errors):.1%} | {ninth:.1%} "
            f"| {largest:+.1%} | {inside} |"
        )
    return lines


def memory_summary(found: Sequence[Score]) -> str:
    """A sentence on peaks and on what fits: all published runs did."""
    both = [score for score in found if score.peak is not None and score.measured_peak]
    told = [score.fits for score in found if score.fits is not None]
    text = f"{sum(told)} of {len(told)} runs whose memory was told were said to fit."
    if both:
        errors = sorted(abs(score.peak / score.measured_peak - 1) for score in both)
        text += (
            f" Peaks of {len(both)} runs: median error {statistics.median(errors):.1%}, largest "
            f"{errors[-1]:.1%}."
        )
    return text


def table(found: Sequence[Score]) -> list[str]:
    """Markdown: a row per run."""
    lines = [
        "| run | devices | kind | metric | measured | predicted | error of the step |",
        "|---|---|---|---|---|---|---|",
    ]
    for score in found:
        recipe = score.recipe
        link = f"[{recipe.id}]({recipe.url.split()[0]}) {recipe.model}"
        lines.append(
            f"| {link} | {recipe.devices} {score.accelerator} | {score.kind} | {recipe.metric} "
            f"| {score.measured:g} | {score.predicted:g} | {score.error:+.1%} |"
        )
    return lines


def mended(
    found: Sequence[Score], since: Sequence[Score], rows: dict[str, dict[str, str]]
) -> list[str]:
    """Markdown: errors as sealed, and with the recipes as corrected or expressed since.

    Args:
        found: of the sealed predictions.
        since: of the later ones.
        rows: the later predictions by id.
    """
    sealed = {score.recipe.id: f"{score.error:+.1%}" for score in found}
    lines = ["| run | sealed | since | what was mended |", "|---|---|---|---|"]
    for score in since:
        name = score.recipe.id
        before, differs = sealed.get(name, "not expressed"), rows[name]["differs"]
        lines.append(f"| {name} | {before} | {score.error:+.1%} | {differs} |")
    return lines


def main() -> None:
    """Score the predictions."""
    from predict import MENDED, PREDICTIONS, read_predictions

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("figures", type=Path, help="the file whose hash is in measured.sha256")
    parser.add_argument("--batch", type=Path, default=HERE, help="folder of the recipes")
    parser.add_argument("--page", action="store_true", help=f"write the tables into {PAGE.name}")
    options = parser.parse_args()
    batch = options.batch
    sealed = batch / HASH.name
    text = checked(options.figures, sealed) if sealed.exists() else options.figures.read_text()
    predictions = read_predictions(batch / PREDICTIONS)
    figures = list(csv.DictReader(text.splitlines()))
    recipes = read_recipes(batch / "recipes.csv")
    found = scores(predictions, figures, recipes)
    again = read_predictions(batch / MENDED)
    left = [
        f"| {row['id']} | {row['devices']} {row['accelerator']} | {row['left_out']} |"
        for row in predictions.values()
        if row["left_out"]
    ]
    left += [
        f"| {row['id']} | | predicted, but {row['note']} |"
        for row in figures
        if "note" in row and not row["value"]
    ]
    lines = [*summary(found), "", memory_summary(found), "", *table(found)]
    if left:
        lines += ["", "Left out:", "", "| run | devices | why |", "|---|---|---|", *left]
    if again:
        lines += [
            "",
            "Recipes that were mended since:",
            "",
            *mended(found, scores(again, figures, recipes), again),
        ]
    print("\n".join(lines))
    if options.page:
        write_table(PAGE, batch.resolve().name, lines)


if __name__ == "__main__":
    main()
