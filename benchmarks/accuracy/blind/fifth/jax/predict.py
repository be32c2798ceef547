"""Predictions of a folder's programs on one H100, appended to the file ``FOLDER_predictions.csv`` beside it.

    python predict.py [--programs ../jax_held_out] [NAME ...]      # needs the extra `gpu`

Each program is captured as it is (``flint run -- python NAME.py``), partitioned and compiled by XLA
without a device, and simulated at granularities ``kernel`` and ``xla`` and at level ``optimized``.  A
program that has a row keeps it.
"""

import argparse
import csv
import datetime
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FIELDS = (
    "program",
    "at",
    "step_seconds",
    "low_seconds",
    "high_seconds",
    "peak_bytes",
    "kernels",
    "bytes",
    "flops",
    "date",
    "commit",
)
FLINT = (sys.executable, "-m", "flint")


def output(*command: object, cwd: Path = HERE) -> str:
    """What a command prints; its errors end this program."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, cwd=cwd, capture_output=True, text=True).stdout


def row(program: str, at: str, folder: Path) -> dict[str, Any]:
    """One prediction: ``at`` is a granularity or "optimized"."""
    granularity = "kernel" if at == "optimized" else at
    simulate = (*FLINT, "simulate", folder, "--system", "dgx-h100", "--json")
    found = json.loads(output(*simulate, "--granularity", granularity))
    low, high = found["programs"][0]["range"]["times"]["step_seconds"]
    classes = found["programs"][0]["classes"]
    return {
        "program": program,
        "at": at,
        "step_seconds": f"{found['step_seconds']:.6f}",
        "low_seconds": f"{low:.6f}",
        "high_seconds": f"{high:.6f}",
        "peak_bytes": found["peak_memory_bytes"],
        "kernels": round(sum(c["count"] for c in classes if c["name"] != "other")),
        "bytes": round(sum(c["bytes"] for c in classes)),
        "flops": found["flops"],
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        "commit": output("git", "rev-parse", "--short=10", "HEAD").strip(),
    }


def main() -> None:
    """Predict what has no row yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--programs", type=Path, default=HERE, help="their folder")
    parser.add_argument("--keep", type=Path, help="folder for the captures")
    arguments = parser.parse_args()
    others = {"measure", "predict", "score"}
    programs: Path = arguments.programs.resolve()
    names = arguments.names or sorted(p.stem for p in programs.glob("*.py") if p.stem not in others)
    file = programs.with_name(f"{programs.name}_predictions.csv")
    rows = list(csv.DictReader(file.open())) if file.exists() else []
    known = {(r["program"], r["at"]) for r in rows}
    for at in (("kernel", "xla"), ("optimized",)):
        for name in names:
            if (name, at[0]) in known:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                folder = (arguments.keep or Path(scratch)) / f"{name}.{at[0]}"
                level = (
                    ("optimized", "--target", "h100") if at[0] == "optimized" else ("partitioned",)
                )
                run = (*FLINT, "run", "--world", 1, "--system", "dgx-h100", "-o", folder)
                output(*run, "--level", *level, "--", "python", f"{name}.py", cwd=programs)
                new = [row(name, point, folder) for point in at]
            with file.open("a", newline="") as out:
                writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
                if not rows:
                    writer.writeheader()
                writer.writerows(new)
            rows += new
            print(name, at, [r["step_seconds"] for r in new], flush=True)


if __name__ == "__main__":
    main()
