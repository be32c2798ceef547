"""The table of measured steps and the errors of their predictions.

    python score.py [--system dgx-h100] [--predictions build/again.csv]

A cell in brackets was predicted after its figure was known.
"""

import argparse
import csv
import statistics
from pathlib import Path

HERE = Path(__file__).resolve().parent
POINTS = ("kernel", "xla", "optimized")


def table(path: Path) -> list[dict[str, str]]:
    """Rows of a file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """Print the table and medians by granularity."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--system", default="dgx-h100")
    parser.add_argument("--predictions", type=Path, default=HERE / "predictions.csv")
    arguments = parser.parse_args()
    told = {(r["program"], r["system"], r["at"]): r for r in table(arguments.predictions)}
    errors: dict[str, list[float]] = {at: [] for at in POINTS}
    inside: dict[str, int] = dict.fromkeys(POINTS, 0)
    heads = ("program", "measured, ms", "waiting", *POINTS, "peak, GB", "kernel", "optimized")
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|")
    for real in table(HERE / "measured.csv"):
        if real["system"] != arguments.system:
            continue
        seen, peak = float(real["step_seconds"]), float(real["peak_bytes"])
        steps, peaks = [], []
        for at in POINTS:
            guess = told.get((real["program"], arguments.system, at))
            if guess is None:
                steps.append("")
                continue
            error = float(guess["step_seconds"]) / seen - 1
            before = guess["date"] < real["date"]
            steps.append(f"{error:+.1%}" if before else f"({error:+.1%})")
            if at != "xla":
                peaks.append(f"{float(guess['peak_bytes']) / peak - 1:+.1%}")
            if before:
                errors[at].append(abs(error))
                inside[at] += float(guess["low_seconds"]) <= seen <= float(guess["high_seconds"])
        waiting = f"{float(real['waiting_seconds']) * 1e3:.1f}"
        cells = (real["program"], f"{seen * 1e3:.1f}", waiting, *steps, f"{peak / 1e9:.2f}", *peaks)
        print("| " + " | ".join(cells) + " |")
    for at, values in errors.items():
        if values:
            middle, most = statistics.median(values), max(values)
            print(f"{at}: {len(values)} blind, median {middle:.1%}, at most {most:.1%}", end="")
            print(f", {inside[at]} within the range")


if __name__ == "__main__":
    main()
