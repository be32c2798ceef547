"""Run the benchmarks: whole commands, medians, against targets and limits measured in the same run.

    python benchmarks/run.py            all, some thirty minutes and 40 GB of disk; writes
                                        results.json, README.md and the plots
    python benchmarks/run.py --quick    one run each of the smaller cases, writes nothing

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
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import captures  # noqa: E402  # the folder is no package: its scripts are run as files
import cases  # noqa: E402
import growth  # noqa: E402
import machine  # noqa: E402
import report  # noqa: E402
import torch_captures  # noqa: E402


def run(folder: Path, *, quick: bool) -> dict[str, Any]:
    """All cases; outputs go to ``folder`` and are removed case by case."""
    os.environ["PYTHONPATH"] = str(cases.ROOT)
    runs, begin, watch = 1 if quick else 5, time.perf_counter(), machine.Watch()

    def done(what: str) -> None:
        seconds, others = time.perf_counter() - begin, watch.others()
        print(f"{seconds:6.0f} s  others {others:4.0%}  {what}", file=sys.stderr)

    results: dict[str, Any] = {"machine": machine.describe(folder, cases.ROOT)}
    results["unrolled"] = cases.unrolled(folder, 11_000 if quick else 110_000, runs)
    done("unrolled module")
    results["llama_8b"] = cases.traces(folder, cases.LLAMA_8B, "64,8", runs=runs, rounds=runs)
    done("Llama-3 8B")
    results["resnet50"] = cases.resnet50(folder, runs)
    done("ResNet-50")
    if not quick:
        results["llama_405b"] = cases.traces(folder, cases.LLAMA_405B, "128,16", runs=3, rounds=3)
        done("Llama-3 405B")
    results["captures"] = captures.captures(folder, min(runs, 3), quick=quick)
    done("captures")
    if not quick:
        results["everybody"] = captures.everybody(folder)
        done("all traces of 16,384 ranks")
        results["capture_growth"] = {
            "devices": captures.with_devices(folder),
            "layers": captures.with_layers(folder),
        }
        done("growth of captures")
    results["torch_captures"] = torch_captures.captures(folder, min(runs, 3), quick=quick)
    done("captures of PyTorch steps")
    if not quick:
        results["torch_growth"] = {
            "ranks": torch_captures.with_ranks(folder),
            "layers": torch_captures.with_layers(folder),
        }
        done("growth of captures of PyTorch steps")
    results["growth"] = growth.grow(folder, quick=quick)
    done("growth")
    results["machine"]["others"] = watch.others()
    return results


def main() -> None:
    """Measure, then write the results beside this file."""
    parser = argparse.ArgumentParser(description="run Flint's benchmarks")
    parser.add_argument("--quick", action="store_true", help="one run each, nothing written")
    parser.add_argument("--folder", type=Path, help="where outputs go [a temporary folder]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        results = run(Path(folder), quick=given.quick)
    if given.quick:
        print(json.dumps(results, indent=1))
        return
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    report.write(results, HERE)


if __name__ == "__main__":
    main()
