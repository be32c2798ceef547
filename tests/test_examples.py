"""The examples run and say what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_look_at_a_step() -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "examples/look_at_a_step.py",
         ROOT / "models/saved/llama3_8b_scan_fsdp64_tp8.mlirbc", "64,8", "data,model"],
        capture_output=True, text=True, check=True, cwd=ROOT, timeout=120,
    )  # fmt: skip
    # 451 all-gathers carry 56,872,960 bytes: 54.2 MiB over the two kinds of groups.
    gathered = [line for line in run.stdout.splitlines() if line.startswith("all_gather")]
    total = sum(float(line.split()[-6].replace(",", "")) for line in gathered)
    assert abs(total - 56872960 / 2**20) < 0.2
    assert "loop of 32 x" in run.stdout
