"""Errors of blind predictions, in ``flint/cost/blind_errors.csv`` for ranges.

    python benchmarks/accuracy/blind_errors.py            # write the file; say what ranges hold

The idea: every run that was predicted before it was compared (``blind_runs.csv`` and the batches
of ``blind/``) is a row: measured seconds over predicted ones, by accelerator, program, publisher,
and the basis of the speed of products at that time. The coverage of ranges is counted on runs that
they are not based on: on the other half of the runs, on each source without its own runs, and on
each later batch without it.
"""

from __future__ import annotations

import csv
import hashlib
import re
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "blind"))

from predict import MENDED, PREDICTIONS, read_predictions
from recipes import HERE, read_recipes
from score import Score, scores

from flint.cost.uncertainty import Blind, off_by, weight

ROOT = Path(__file__).parents[2]
FILE = ROOT / "flint/cost/blind_errors.csv"
#: Devices whose products had been fitted to training steps when the first 45 runs were predicted,
#: and when the later ones were.
FITTED = ("TPU v5e", "TPU v5p", "TPU v6e", "A100", "H100")
FITTED_LATER = (*FITTED, "TPU7x", "H200")
#: Accelerators by another name than descriptions have.
NAMES = {"TPU v7x": "TPU7x"}
#: Folders of sealed predictions, in the order of time.
_LATER = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
BATCHES = (HERE, *(HERE / name for name in _LATER))


def first_runs() -> list[Blind]:
    """The 45 of ``blind_runs.csv``."""
    with (HERE.parent / "blind_runs.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        Blind(
            device := accelerator(row["hardware"]),
            "measured" if device in FITTED else "assumed",
            "dense",
            campaign(row["url"]),
            float(row["measured_s"]) / float(row["predicted_s"]),
        )
        for row in rows
    ]


def sealed_runs(batch: Path) -> list[Blind]:
    """Those of a batch that were predicted and have a figure."""
    return [
        Blind(
            device := accelerator(score.accelerator),
            "measured" if device in FITTED_LATER else "assumed",
            score.recipe.program,
            campaign(score.recipe.url),
            1 / (1 + score.error),
        )
        for score in scored(batch)
    ]


def scored(batch: Path) -> list[Score]:
    """Predictions of a batch with their figures."""
    return _with_figures(batch, PREDICTIONS)


def scored_again(batch: Path) -> list[Score]:
    """The last simulations of a batch's opened rows with their figures: no longer blind."""
    return _with_figures(batch, MENDED)


def _with_figures(batch: Path, file_name: str) -> list[Score]:
    predictions = read_predictions(batch / file_name)
    with (batch / "measured.csv").open(newline="", encoding="utf-8") as file:
        figures = list(csv.DictReader(file))
    return scores(predictions, figures, read_recipes(batch / "recipes.csv"))


def campaign(url: str) -> str:
    """The publisher of a run: the repository of its page, or the page's host."""
    host, *path = url.split("/")[2:5]
    return "/".join(path) if host == "github.com" else host


def accelerator(hardware: str) -> str:
    """A word of a description's name."""
    name = hardware.split(",")[0]
    name = NAMES.get(name, name)
    return name if name.startswith("TPU") else re.split(r"[ -]", name)[0]


def held(
    runs: list[Blind], known: list[Blind], rests_on: Callable[[Blind, Blind], bool]
) -> str:  # fmt: skip
    """How many runs are within the range from others.

    Args:
        runs: those with a range.
        known: those that ranges are based on.
        rests_on: whether the range of the first may be based on the second.
    """
    inside = 0
    for run in runs:
        others = [other for other in known if rests_on(run, other)]
        counts = [
            weight(
                (other.arrays, other.basis) == (run.arrays, run.basis),
                other.program == run.program,
                other.accelerator == run.accelerator,
            )
            for other in others
        ]
        inside += run.off <= off_by(others, counts)
    return f"{inside} of {len(runs)} ({inside / len(runs):.0%})"


def half(run: Blind) -> int:
    """0 or 1, as a hash of the run has it."""
    return hashlib.sha256(repr(run).encode()).digest()[0] % 2


def main() -> None:
    """Write the file and count."""
    first, *sealed = first_runs(), *map(sealed_runs, BATCHES)
    runs = sum(sealed, first)
    with FILE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Blind.__slots__)
        for run in runs:
            writer.writerow(
                [run.accelerator, run.basis, run.program, run.campaign, f"{run.error:.4f}"]
            )
    splits: dict[str, Callable[[Blind, Blind], bool]] = {
        "from the other half": lambda run, other: half(run) != half(other),
        "from all other sources": lambda run, other: run.campaign != other.campaign,
        "from all other runs": lambda run, other: run is not other,
    }
    for name, split in splits.items():
        print(f"ranges {name}: {held(runs, runs, split)}")
    known = first
    for batch in sealed:
        print(f"of a later batch, from all before it: {held(batch, known, lambda *_: True)}")
        known = known + batch


if __name__ == "__main__":
    main()
