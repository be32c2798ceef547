"""Run the benchmarks: whole commands, medians, against targets and limits measured in the same run.

    python benchmarks/run.py            all, some five minutes; writes results.json and README.md
    python benchmarks/run.py --quick    one run each of the smaller cases, writes nothing

What is measured stands in ``cases.py``; ``report.py`` makes the tables and the plot.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import cases  # noqa: E402  # the folder is no package: its scripts are run as files
import report  # noqa: E402


def main() -> None:
    """Measure, then write the results beside this file."""
    parser = argparse.ArgumentParser(description="run Flint's benchmarks")
    parser.add_argument("--quick", action="store_true", help="one run each, nothing written")
    parser.add_argument("--folder", type=Path, help="where outputs go [a temporary folder]")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        results = cases.run(Path(folder), runs=1 if given.quick else 5, quick=given.quick)
    if given.quick:
        print(json.dumps(results, indent=1))
        return
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    report.write(results, HERE)


if __name__ == "__main__":
    main()
