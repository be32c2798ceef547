"""Run the benchmarks: whole commands, medians, against targets and limits measured in the same run.

    python benchmarks/run.py                  all, some thirty minutes and 40 GB of disk; writes
                                              results.json, README.md and the plots
    python benchmarks/run.py --only torch     a part, beside what was measured before
    python benchmarks/run.py --quick          one run each of the smaller cases, writes nothing

What is measured stands in ``cases.py`` and ``growth.py``; ``report.py`` makes the tables and
``plots.py`` the plot.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import captures  # noqa: E402  # the folder is no package: its scripts are run as files
import cases  # noqa: E402
import growth  # noqa: E402
import machine  # noqa: E402
import post_execution  # noqa: E402
import report  # noqa: E402
import simulations  # noqa: E402
import sweeps  # noqa: E402
import targets  # noqa: E402
import torch_captures  # noqa: E402

Part = Callable[[Path, bool], dict[str, Any]]


def _files(folder: Path, quick: bool) -> dict[str, Any]:
    runs = 1 if quick else 5
    found = {
        "unrolled": cases.unrolled(folder, 11_000 if quick else 110_000, runs),
        "llama_8b": cases.traces(folder, cases.LLAMA_8B, "64,8", runs=runs, rounds=runs),
        "resnet50": cases.resnet50(folder, runs),
    }
    if not quick:
        found["llama_405b"] = cases.traces(folder, cases.LLAMA_405B, "128,16", runs=3, rounds=3)
    return found


def _captures(folder: Path, quick: bool) -> dict[str, Any]:
    found = {"captures": captures.captures(folder, 1 if quick else 3, quick=quick)}
    if not quick:
        found["everybody"] = captures.everybody(folder)
        found["capture_growth"] = {
            "devices": captures.with_devices(folder),
            "layers": captures.with_layers(folder),
        }
    return found


def _torch_captures(folder: Path, quick: bool) -> dict[str, Any]:
    found = {"torch_captures": torch_captures.captures(folder, 1, quick=quick)}
    if not quick:
        found["torch_growth"] = {
            "ranks": torch_captures.with_ranks(folder),
            "layers": torch_captures.with_layers(folder),
        }
    return found


def _targets(folder: Path, quick: bool) -> dict[str, Any]:
    return {"targets": targets.captures(folder, 1 if quick else 3, quick=quick)}


def _simulations(folder: Path, quick: bool) -> dict[str, Any]:
    return {"simulations": simulations.simulations(folder, 1 if quick else 3, quick=quick)}


def _sweeps(folder: Path, quick: bool) -> dict[str, Any]:
    return {"sweeps": sweeps.sweeps(folder, 1 if quick else 3, quick=quick)}


def _post_execution(folder: Path, quick: bool) -> dict[str, Any]:
    found = post_execution.conversions(folder, 1 if quick else 5, quick=quick)
    return {"post_execution": found}


def _growth(folder: Path, quick: bool) -> dict[str, Any]:
    return {"growth": growth.grow(folder, quick=quick)}


#: Name -> what it measures, as entries of results.json.
PARTS: dict[str, Part] = {
    "files": _files,
    "captures": _captures,
    "torch": _torch_captures,
    "targets": _targets,
    "simulations": _simulations,
    "post_execution": _post_execution,
    "sweeps": _sweeps,
    "growth": _growth,
}


def run(folder: Path, parts: Sequence[str], *, quick: bool) -> dict[str, Any]:
    """Some parts; outputs go to ``folder`` and are removed case by case."""
    os.environ["PYTHONPATH"] = str(cases.ROOT)
    # An installed package is byte-compiled: no run but the first may pay for that.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    found: dict[str, Any] = {"machine": machine.describe(folder, cases.ROOT), "parts": {}}
    for name in parts:
        begin, watch = time.perf_counter(), machine.Watch()
        found |= PARTS[name](folder, quick)
        here = {key: found["machine"][key] for key in ("date", "commit", "cpu")}
        found["parts"][name] = {**here, "others": watch.others()}
        seconds, others = time.perf_counter() - begin, watch.others()
        print(f"{seconds:6.0f} s  others {others:4.0%}  {name}", file=sys.stderr)
    return found


def main() -> None:
    """Measure, then write the results beside this file."""
    parser = argparse.ArgumentParser(description="run Flint's benchmarks")
    parser.add_argument("--quick", action="store_true", help="one run each, nothing written")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts; others are kept")
    parser.add_argument("--folder", type=Path, help="where outputs go [a temporary folder]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        found = run(Path(folder), given.only or list(PARTS), quick=given.quick)
    if given.quick:
        print(json.dumps(found, indent=1))
        return
    file = HERE / "results.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    results = known | found | {"parts": known.get("parts", {}) | found["parts"]}
    file.write_text(json.dumps(results, indent=1) + "\n")
    report.write(results, HERE)


if __name__ == "__main__":
    main()
