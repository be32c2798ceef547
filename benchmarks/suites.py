"""How long the tests take on this machine: `make test`, cold, in a clean clone.

    python benchmarks/suites.py [test | test-all]

Prints a row for benchmarks/README.md: the whole command, the set-up of the virtual environment
included, with how many tests passed and how many were skipped.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from machine import Watch, describe
from measure import measure

ROOT = Path(__file__).parent.parent


def main(target: str) -> None:
    """Measure one target, once: it takes minutes, and nothing is warm."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "flint"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        watch = Watch()
        done = measure(["make", "-C", str(clone), target], runs=1, warm=False)
        others = watch.others()
        known = describe(clone, clone)
    counts = {word: number for number, word in re.findall(r"(\d+) (passed|skipped)", done.said[0])}
    passed, skipped = counts.get("passed", "0"), counts.get("skipped", "0")
    busy = done.user + done.system
    print(
        f"| `make {target}` | {done.wall / 60:.1f} min | {busy / 60:.1f} min | {passed} | {skipped}"
        f" | {known['cpu']}, {known['cores']} cores | {known['date']} at {known['commit']} |"
    )
    print(f"Other processes had {others:.0%} of the cores.", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:] or ["test"])
