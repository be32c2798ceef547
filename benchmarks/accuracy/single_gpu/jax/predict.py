"""Predictions of the programs in ``programs/`` on one GPU, appended to ``predictions.csv``.

    python predict.py [--system dgx-h100] [NAME ...]      # needs the extra `gpu`, flax and equinox

Each program is captured as it is (``flint run -- python NAME.py``), partitioned and compiled by XLA
without a device, and simulated at granularities ``kernel`` and ``xla`` and at level ``optimized``.
A program that has a row keeps it; ``--file`` writes another file, with today's model.
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

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
FIELDS = (
    "program",
    "system",
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


def output(*command: object, cwd: Path = PROGRAMS) -> str:
    """What a command prints; its errors end this program."""
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, cwd=cwd, capture_output=True, text=True).stdout


def row(program: str, system: str, at: str, folder: Path) -> dict[str, Any]:
    """One prediction: ``at`` is a granularity or "optimized"."""
    granularity = "kernel" if at == "optimized" else at
    simulate = (*FLINT, "simulate", folder, "--system", system, "--json")
    found = json.loads(output(*simulate, "--granularity", granularity))
    low, high = found["programs"][0]["range"]["times"]["step_seconds"]
    classes = found["programs"][0]["classes"]
    return {
        "program": program,
        "system": system,
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
    parser.add_argument("--system", default="dgx-h100")
    parser.add_argument("--at", nargs="+", default=["kernel", "xla", "optimized"])
    parser.add_argument("--keep", type=Path, help="folder for the captures; those there are used")
    parser.add_argument("--file", type=Path, default=HERE / "predictions.csv")
    arguments = parser.parse_args()
    names = arguments.names or sorted(p.stem for p in PROGRAMS.glob("*.py"))
    rows = list(csv.DictReader(arguments.file.open())) if arguments.file.exists() else []
    known = {(r["program"], r["system"], r["at"]) for r in rows}
    target = arguments.system.split("-")[1]
    levels = {"partitioned": ["kernel", "xla"], "optimized": ["optimized"]}
    for name in names:
        for level, points in levels.items():
            points = [at for at in points if at in arguments.at]
            points = [at for at in points if (name, arguments.system, at) not in known]
            if not points:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                folder = (arguments.keep or Path(scratch)).resolve() / f"{name}.{target}.{level}"
                if not folder.exists():
                    run = (*FLINT, "run", "--world", 1, "--system", arguments.system, "-o", folder)
                    compiled = ("--target", target) if level == "optimized" else ()
                    output(*run, "--level", level, *compiled, "--", "python", f"{name}.py")
                new = [row(name, arguments.system, point, folder) for point in points]
            with arguments.file.open("a", newline="") as out:
                writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
                if not rows:
                    writer.writeheader()
                writer.writerows(new)
            rows += new
            print(name, points, [r["step_seconds"] for r in new], flush=True)


if __name__ == "__main__":
    main()
