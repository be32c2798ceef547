"""What a run measured, as rows of measured.csv: from the folder that the runs wrote.

    python benchmarks/accuracy/single_gpu/extract.py FOLDER -o measured.csv

A step's time is the median of 10 to 20 steps between two ends of the optimizer's step, by CUDA
events; peaks are PyTorch's own.  Kernels by class come from the profile of two further steps.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

COLUMNS = (
    "id", "step_seconds", "min_seconds", "max_seconds", "wall_seconds", "host_seconds",
    "allocated_bytes", "reserved_bytes", "profiled_seconds", "busy_seconds", "kernels", "classes",
    "torch", "device", "clocks", "error",
)  # fmt: skip


def profiled(trace: Path, folder: Path) -> dict[str, str]:
    """Kernels and seconds by class of the last step of a profile."""
    if not folder.exists():
        command = [sys.executable, "-m", "flint", "convert", str(trace), "-o", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(trace.name, done.stderr.strip().splitlines()[-1:], file=sys.stderr)
            return {}
    command = [sys.executable, "-m", "flint", "simulate", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(trace.name, done.stderr.strip().splitlines()[-1:], file=sys.stderr)
        return {}
    result = json.loads(done.stdout)
    classes = {
        c["name"]: [round(c["count"]), float(f"{c['seconds']:.4g}"), round(c["bytes"] or 0)]
        for c in result["programs"][0]["classes"]
    }
    kernels = sum(count for name, (count, *_) in classes.items() if name != "host")
    return {
        "profiled_seconds": f"{result['step_seconds']:.5g}",
        "busy_seconds": f"{result['compute_seconds']:.5g}",
        "kernels": str(kernels), "classes": json.dumps(classes),
    }  # fmt: skip


def row_of(path: Path, cache: Path | None) -> dict[str, str]:
    """A row from the file that a run wrote."""
    found = json.loads(path.read_text())
    row = {"id": found["id"], "torch": found["torch"], "error": found.get("error", "")[-200:]}
    if "gpu_median" not in found:
        return row
    if "host_steps" not in found:  # the program times itself; its peak may be that of its start
        return row | {"step_seconds": f"{found['gpu_median']:.5g}"}
    memory = [
        found[key] for key in ("memory_early", "memory_warm", "memory_steady") if key in found
    ]
    host = sorted(found["host_steps"])
    row |= {
        "step_seconds": f"{found['gpu_median']:.5g}", "min_seconds": f"{found['gpu_min']:.5g}",
        "max_seconds": f"{found['gpu_max']:.5g}", "wall_seconds": f"{found['wall_mean']:.5g}",
        "host_seconds": f"{host[len(host) // 2]:.5g}",
        "allocated_bytes": str(found["memory_steady"]["allocated"]),
        "reserved_bytes": str(max(m["reserved"] for m in memory)),
        "device": found["smi"].split(",")[0], "clocks": ",".join(found["smi"].split(",")[1:5]),
    }  # fmt: skip
    trace = path.with_name(f"{found['id']}.trace.json.gz")
    known = trace.exists() and cache is not None
    return row | (profiled(trace, cache / found["id"]) if known else {})


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path("build/single_gpu_profiles"))
    parser.add_argument("--without-profiles", action="store_true")
    arguments = parser.parse_args()
    cache = None if arguments.without_profiles else arguments.cache
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
    with open(arguments.output, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        for path in sorted(arguments.folder.glob("*.json")):
            writer.writerow(row_of(path, cache))


if __name__ == "__main__":
    main()
