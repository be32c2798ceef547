"""What blind predictions were off by, as ``flint/cost/blind_errors.csv`` holds it for ranges.

    python benchmarks/accuracy/blind_errors.py            # write the file; say what ranges hold

The idea: every run that was predicted before it was compared, of both tables (``blind_runs.csv``
and ``blind/``), is a row: measured seconds over predicted ones, by accelerator, program, and what
the speed of products rested on at that time.  Whether ranges hold what they say is counted on runs
that they do not rest on: on the other half of the runs, and on each source without its own runs.
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

from predict import read_predictions
from recipes import HERE, RATES, read_recipes

from flint.cost.uncertainty import Blind, off_by, weight

ROOT = Path(__file__).parents[2]
FILE = ROOT / "flint/cost/blind_errors.csv"
#: Devices whose products had been fitted to training steps when the first 45 runs were predicted,
#: and when the later 70 were.
FITTED = ("TPU v5e", "TPU v5p", "TPU v6e", "A100", "H100")
FITTED_LATER = (*FITTED, "TPU7x", "H200")
#: Accelerators by another name than descriptions have.
NAMES = {"TPU v7x": "TPU7x"}


def first_runs() -> list[Blind]:
    """The 45 of ``blind_runs.csv``."""
    with (HERE.parent / "blind_runs.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        Blind(
            device := accelerator(row["hardware"]),
            "measured" if device in FITTED else "assumed",
            "dense",
            row["source"],
            float(row["measured_s"]) / float(row["predicted_s"]),
        )
        for row in rows
    ]


def sealed_runs() -> list[Blind]:
    """Those of ``blind/`` that were predicted."""
    recipes, predictions = read_recipes(), read_predictions()
    with (HERE / "measured.csv").open(newline="", encoding="utf-8") as file:
        figures = {row["id"]: row for row in csv.DictReader(file)}
    found = []
    for name, row in predictions.items():
        if not row["step_seconds"]:
            continue
        measured = float(figures[name]["value"]) / (100 if figures[name]["unit"] == "%" else 1)
        faster = recipes[name].metric in RATES
        value = float(row["value"])
        device = accelerator(row["accelerator"])
        found.append(
            Blind(
                device,
                "measured" if device in FITTED_LATER else "assumed",
                recipes[name].program,
                name.split("-")[0],
                value / measured if faster else measured / value,
            )
        )
    return found


def accelerator(hardware: str) -> str:
    """A word of a description's name."""
    name = hardware.split(",")[0]
    name = NAMES.get(name, name)
    return name if name.startswith("TPU") else re.split(r"[ -]", name)[0]


def held(runs: list[Blind], rests_on: Callable[[Blind, Blind], bool]) -> tuple[int, int]:
    """Runs within the range from others, of how many.

    Args:
        runs: all.
        rests_on: whether the range of the first may rest on the second.
    """
    inside = 0
    for run in runs:
        others = [other for other in runs if rests_on(run, other)]
        counts = [
            weight(
                (other.arrays, other.basis) == (run.arrays, run.basis),
                other.program == run.program,
                other.accelerator == run.accelerator,
            )
            for other in others
        ]
        inside += run.off <= off_by(others, counts)
    return inside, len(runs)


def half(run: Blind) -> int:
    """0 or 1, as a hash of the run has it."""
    return hashlib.sha256(repr(run).encode()).digest()[0] % 2


def main() -> None:
    """Write the file and count."""
    first, sealed = first_runs(), sealed_runs()
    runs = first + sealed
    with FILE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Blind.__slots__)
        for run in runs:
            writer.writerow(
                [run.accelerator, run.basis, run.program, run.campaign, f"{run.error:.4f}"]
            )
    splits: dict[str, Callable[[Blind, Blind], bool]] = {
        "from the other half": lambda run, other: half(run) != half(other),
        "from other sources": lambda run, other: run.campaign != other.campaign,
        "from all others": lambda run, other: run is not other,
    }
    for name, split in splits.items():
        inside, count = held(runs, split)
        print(f"ranges {name}: {inside} of {count} ({inside / count:.0%})")
    inside = sum(run.off <= off_by(first, [1.0] * len(first)) for run in sealed)
    print(f"of the sealed runs, from the first ones alone: {inside} of {len(sealed)}")


if __name__ == "__main__":
    main()
