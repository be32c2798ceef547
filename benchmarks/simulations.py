"""How long ``flint simulate`` takes on a captured step, on few ranks and on many."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from captures import LLAMA3, THREE
from cases import FLINT, remover
from measure import measure

Results = dict[str, Any]

#: Replicas of 8 x 8 devices.
REPLICAS = (8, 256, 16384)


def simulations(folder: Path, runs: int, *, quick: bool = False) -> Results:
    """Llama-3 8B's step on more and more ranks, at kernel granularity."""
    return {
        f"{64 * count:,}": _case(folder, count, runs) for count in REPLICAS[: 1 if quick else None]
    }


def _case(folder: Path, replicas: int, runs: int) -> Results:
    out = folder / "out"
    capture = [
        *FLINT,
        "capture",
        f"{LLAMA3}:train_8b",
        "--mesh",
        f"{replicas},8,8",
        "--axes",
        THREE,
    ]
    subprocess.run([*capture, "--ranks", "0", "-o", str(out)], capture_output=True, check=True)
    measured = measure([*FLINT, "simulate", str(out), "--json"], runs=runs)
    remover(out)()
    return {**measured.to_json(), "step": measured.document("step_seconds")}
