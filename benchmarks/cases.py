"""What the benchmarks measure, growth apart.

Every case is a whole process, imports included.  Where a limit exists it is measured beside it, in
the same run; a peer that cannot be installed is named with its published figure.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import measure

ROOT = Path(__file__).parent.parent
LLAMA_8B = ROOT / "models/saved/llama3_8b_scan_fsdp64_tp8.mlirbc"
LLAMA_405B = ROOT / "tests/data/stablehlo/llama3_405b_scan_fsdp128_tp16.mlirbc"
PYTHON = sys.executable
FLINT = [PYTHON, "-m", "flint"]
#: Per-op conversion of a ResNet-50 training module for 4 devices by hespas, as measured on a
#: machine like ours (4 shared cores).  The package registry has no hespas, so it cannot run here.
HESPAS_SECONDS, HESPAS_OPS = 12.8, 7500

Results = dict[str, Any]


def unrolled(folder: Path, ops: int, runs: int) -> Results:
    """File to graph of an unrolled module, in each form; then reader and walker alone."""
    found: Results = {}
    for form in ("text", "bytecode", "hlo"):
        path = folder / f"unrolled.{form}"
        script("modules.py", str(path), "--ops", str(ops), "--form", form)
        whole = measure(probe("graph", str(path)), runs=runs)
        stages = measure(probe("stages", str(path)), runs=runs, warm=False)
        found[form] = {
            **whole.to_json(),
            "bytes": path.stat().st_size,
            "read": stages.document("read"),
            "walk": stages.document("walk"),
            "ops": int(stages.document("ops")),
            "stored": int(stages.document("stored")),
        }
        path.unlink()
    return found


def traces(folder: Path, module: Path, mesh: str, *, runs: int, rounds: int) -> Results:
    """``flint convert`` to the traces of all ranks, and ``flint check`` on them.

    Args:
        folder: where outputs go.
        module: the saved program.
        mesh: as on the command line.
        runs: of the command.
        rounds: of trace writing against plain writing.
    """
    out = folder / "out"
    command = [*FLINT, "convert", str(module), "-o", str(out), "--mesh", mesh, "--json"]
    converted = measure(command, runs=runs, before=remover(out))
    manifest = json.loads(converted.said[-1])["et"]
    checked = measure([*FLINT, "check", str(out), "--json"], runs=1, warm=False)
    shutil.rmtree(out)
    few = measure([*command, "--ranks", "0-7"], runs=runs, before=remover(out))
    shutil.rmtree(out)
    written = measure(
        probe("writing", str(module), mesh, str(folder), str(rounds)), runs=1, warm=False
    )
    return {
        **converted.to_json(),
        "graph": converted.document("seconds", "graph"),
        "save": converted.document("seconds", "write"),
        "ranks": manifest["files"],
        "distinct_files": manifest["distinct_files"],
        "trace_bytes": manifest["trace_bytes"],
        "check": {**checked.to_json(), "nodes": int(checked.document("nodes"))},
        "ranks_0_7": few.to_json(),
        "writing": json.loads(written.said[0]),
    }


def resnet50(folder: Path, runs: int) -> Results:
    """Per-op conversion of a ResNet-50 training module."""
    path, out = folder / "resnet50.mlirbc", folder / "out"
    script("train_resnet50.py", str(path))
    command = [*FLINT, "convert", str(path), "-o", str(out), "--granularity", "op", "--json"]
    converted = measure(command, runs=runs, before=remover(out))
    shutil.rmtree(out)
    stages = measure(probe("stages", str(path)), runs=1, warm=False)
    return {
        **converted.to_json(),
        "graph": converted.document("seconds", "graph"),
        "save": converted.document("seconds", "write"),
        "ops": int(stages.document("ops")),
        "peer_seconds": HESPAS_SECONDS,
        "peer_ops": HESPAS_OPS,
    }


def probe(*words: str) -> list[str]:
    """The command line of a probe."""
    return [PYTHON, str(ROOT / "benchmarks/probes.py"), *words]


def script(name: str, *words: str) -> None:
    """Run one of the generators, in a process of its own, which keeps this one small."""
    command = [PYTHON, str(ROOT / "benchmarks" / name), *words]
    subprocess.run(command, capture_output=True, check=True)


def remover(out: Path) -> Callable[[], None]:
    """A function that removes the folder and lets the disk finish what it was told before."""

    def remove() -> None:
        shutil.rmtree(out, ignore_errors=True)
        os.sync()

    return remove
