"""Measured steps against predictions: a table, and what the kernels of each class took.

    python benchmarks/accuracy/single_gpu/score.py                    # measured.csv
    python benchmarks/accuracy/single_gpu/score.py --classes          # by class, from the profiles
    python benchmarks/accuracy/single_gpu/score.py -p build/again.csv # with today's model

``measured.csv`` has one row per run: seconds of the median step on the device, the peak of
allocated and of reserved bytes, and the kernels and seconds by class of one profiled step.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
from pathlib import Path

HERE = Path(__file__).parent


def table(path: Path) -> dict[str, dict[str, str]]:
    """Rows by id."""
    with open(path, newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def error(predicted: float, measured: float) -> float:
    """Relative error."""
    return predicted / measured - 1


def rows(predictions: Path, measured: Path) -> list[list[str]]:
    """Cells of the table: id, measured, predicted, errors of step, allocated and reserved bytes."""
    found = []
    told = table(predictions)
    for name, real in table(measured).items():
        guess = told.get(name)
        if guess is None or guess["left_out"]:
            found.append([name, f"{float(real['step_seconds']) * 1e3:.1f}", *["-"] * 5])
            continue
        step, seen = float(guess["step_seconds"]), float(real["step_seconds"])
        inside = float(guess["low_seconds"]) <= seen <= float(guess["high_seconds"])
        cells = [name, f"{seen * 1e3:.1f}", f"{step * 1e3:.1f}", f"{error(step, seen):+.1%}"]
        cells.append("yes" if inside else "no")
        for key in ("allocated_bytes", "reserved_bytes"):
            known = real[key]
            cells.append(f"{error(float(guess[key]), float(known)):+.1%}" if known else "-")
        kernels = real.get("kernels")
        cells.append(f"{guess['kernels']} / {kernels}" if kernels else "-")
        found.append(cells)
    return found


def by_class(predictions: Path, measured: Path) -> None:
    """Prints milliseconds and kernels by class, predicted and measured."""
    told = table(predictions)
    for name, real in table(measured).items():
        guess = told.get(name)
        if guess is None or guess["left_out"] or not real.get("classes"):
            continue
        a, b = json.loads(guess["classes"]), json.loads(real["classes"])
        times = (guess["step_seconds"], real["step_seconds"], real["busy_seconds"])
        step, seen, busy = (float(time) * 1e3 for time in times)
        print(f"{name}: step {step:.1f} / {seen:.1f} ms, busy {busy:.1f}")
        for kind in dict.fromkeys([*a, *b]):
            mine, theirs = a.get(kind, [0, 0, 0]), b.get(kind, [0, 0, 0])
            print(
                f"    {kind:20} {mine[1] * 1e3:8.2f} / {theirs[1] * 1e3:8.2f} ms"
                f"   {mine[0]:5} / {theirs[0]:5}   {mine[2] / 1e9:7.2f} GB"
            )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-p", "--predictions", type=Path, default=HERE / "predictions.csv")
    parser.add_argument("-m", "--measured", type=Path, default=HERE / "measured.csv")
    parser.add_argument("--classes", action="store_true")
    arguments = parser.parse_args()
    if arguments.classes:
        by_class(arguments.predictions, arguments.measured)
        return
    found = rows(arguments.predictions, arguments.measured)
    print("| run | measured, ms | predicted | error | in range | allocated | reserved | kernels |")
    print("|---|---|---|---|---|---|---|---|")
    for cells in found:
        print("| " + " | ".join(cells) + " |")
    errors = [abs(float(c[3].rstrip("%"))) for c in found if c[3] != "-"]
    if errors:
        late = statistics.quantiles(errors, n=10)[-1] if len(errors) > 1 else errors[0]
        middle = statistics.median(errors)
        print(f"\n{len(errors)} runs: median {middle:.1f}%, 90th percentile {late:.1f}%")


if __name__ == "__main__":
    main()
