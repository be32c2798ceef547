"""Predictions of the programs in programs/ on one GPU, made before the programs ran on one.

    python benchmarks/accuracy/single_gpu/predict.py            # all runs without a prediction
    python benchmarks/accuracy/single_gpu/predict.py --on h200  # those of h200/runs.csv
    python benchmarks/accuracy/single_gpu/predict.py gpt2 vit   # those
    python benchmarks/accuracy/single_gpu/predict.py --again -o build/single_gpu.csv

The idea: a prediction is made once.  A row that has one is never written again; --again simulates
all of them with today's model into another file.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
COLUMNS = (
    "id", "step_seconds", "low_seconds", "high_seconds", "compute_seconds", "reserved_bytes",
    "allocated_bytes", "fits", "kernels", "classes", "date", "commit", "left_out",
)  # fmt: skip
#: GPU -> system, and folder of its tables.
SYSTEMS = {"h100": ("dgx-h100", HERE), "h200": ("hgx-h200", HERE / "h200")}


def runs(folder: Path) -> list[dict[str, str]]:
    """The rows of a folder's runs.csv."""
    with open(folder / "runs.csv", newline="") as file:
        return list(csv.DictReader(file))


def flint(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Flint's command."""
    command = [sys.executable, "-m", "flint", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def capture(run: dict[str, str], folder: Path, on: str) -> str:
    """Capture a run into a folder; the reason if it could not be captured."""
    level = ["--level", run["level"]]
    level += ["--target", on] if run["level"] == "optimized" else ["--system", SYSTEMS[on][0]]
    name, *options = shlex.split(run["command"])
    program = ["python", str(HERE / "programs" / name), *options]
    done = flint("run", "--world", "1", *level, "-o", str(folder), "--", *program)
    (folder.parent / f"{folder.name}.log").write_text(done.stdout + done.stderr)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no message"])[-1]


def row_of(run: dict[str, str], cache: Path, again: bool, on: str) -> dict[str, str]:
    """A row of the predictions, or why there is none."""
    folder = cache / run["id"]
    left_out = "" if folder.exists() and not again else capture(run, folder, on)
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True)
    row = {
        "id": run["id"], "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M"),
        "commit": commit.strip(), "left_out": left_out,
    }  # fmt: skip
    if left_out:
        return row
    done = flint("simulate", str(folder), "--system", SYSTEMS[on][0], "--json")
    if done.returncode:
        return {**row, "left_out": done.stderr.strip().splitlines()[-1]}
    result = json.loads(done.stdout)
    program = result["programs"][0]
    memory = program["memory"]
    low, high = result["range"]["times"]["step_seconds"]
    free = memory.get("free blocks of the allocator", 0)
    classes = {
        c["name"]: [round(c["count"]), float(f"{c['seconds']:.4g}"), round(c["bytes"])]
        for c in program["classes"]
    }
    work = sum(count for name, (count, seconds, _) in classes.items() if seconds)
    return {
        **row, "step_seconds": f"{result['step_seconds']:.5g}", "low_seconds": f"{low:.5g}",
        "high_seconds": f"{high:.5g}", "compute_seconds": f"{result['compute_seconds']:.5g}",
        "reserved_bytes": str(round(result["peak_memory_bytes"])),
        "allocated_bytes": str(round(result["peak_memory_bytes"] - free)),
        "fits": str(result["fits"]), "kernels": str(work), "classes": json.dumps(classes),
    }  # fmt: skip


def predicted(path: Path) -> set[str]:
    """Ids of the rows that a file has."""
    if not path.exists():
        return set()
    with open(path, newline="") as file:
        return {row["id"] for row in csv.DictReader(file)}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--on", choices=SYSTEMS, default="h100")
    parser.add_argument("-o", "--output", type=Path, help="default: predictions.csv of the GPU")
    parser.add_argument("--cache", type=Path, help="of captures; default: build/single_gpu[_GPU]")
    parser.add_argument("--again", action="store_true", help="capture anew, into --output")
    parser.add_argument("--resimulate", action="store_true", help="the cached captures, anew")
    arguments = parser.parse_args()
    tables = SYSTEMS[arguments.on][1]
    suffix = "" if tables == HERE else f"_{arguments.on}"
    cache = arguments.cache or ROOT / "build" / f"single_gpu{suffix}"
    output = arguments.output or tables / "predictions.csv"
    cache.mkdir(parents=True, exist_ok=True)
    for run in runs(tables):
        chosen = not arguments.ids or run["id"] in arguments.ids
        if chosen and run["id"] not in predicted(output):
            row = row_of(run, cache, arguments.again, arguments.on)
            first = not output.exists()
            with open(output, "a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, restval="")
                if first:
                    writer.writeheader()
                writer.writerow(row)


if __name__ == "__main__":
    main()
