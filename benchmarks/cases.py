"""What the benchmarks measure.

Every case is a whole process, imports included.  Where a limit or a peer exists it is measured (or,
for a published figure, named) beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import Measured, measure, slope

ROOT = Path(__file__).parent.parent
LLAMA_8B = ROOT / "models/saved/llama3_8b_scan_fsdp64_tp8.mlirbc"
LLAMA_405B = ROOT / "tests/data/stablehlo/llama3_405b_scan_fsdp128_tp16.mlirbc"
PYTHON = sys.executable
FLINT = [PYTHON, "-m", "flint"]
#: Seconds for the per-op conversion of a ResNet-50 training module of 7,500 ops on a machine like
#: ours (4 shared cores); the peer cannot be installed from the package registry.
HESPAS_SECONDS, HESPAS_OPS = 12.8, 7500

Results = dict[str, Any]


def run(folder: Path, *, runs: int, quick: bool) -> Results:
    """All cases; outputs go to ``folder`` and are removed case by case."""
    os.environ["PYTHONPATH"] = str(ROOT)
    results: Results = {"unrolled": unrolled(folder, 11_000 if quick else 110_000, runs)}
    results["llama_8b"] = traces(folder, LLAMA_8B, "64,8", runs)
    results["resnet50"] = resnet50(folder, runs)
    if not quick:
        results["llama_405b"] = traces(folder, LLAMA_405B, "128,16", 3)
        results["growth"] = {
            "ops": growth_with_ops(folder),
            "ranks": growth_with_ranks(folder),
            "written": growth_with_written_ranks(folder),
            "trips": growth_with_trips(folder),
        }
    return results


def unrolled(folder: Path, ops: int, runs: int) -> Results:
    """File to graph of an unrolled module, in each form."""
    found: Results = {}
    for form in ("text", "bytecode", "hlo"):
        path = folder / f"unrolled.{form}"
        count = _module(path, "--ops", str(ops), "--form", form)
        code = f"import flint; flint.convert({str(path)!r})"
        found[form] = {"ops": count, "bytes": path.stat().st_size}
        found[form]["read_and_walk_seconds"] = read_and_walk(path)
        found[form] |= measure([PYTHON, "-c", code], runs=runs).to_json()
        path.unlink()
    return found


def read_and_walk(path: Path) -> float:
    """Seconds of reader and walker alone, the best of three in one process."""
    code = f"""
import time
from pathlib import Path
from flint.hlo.reader import read_hlo
from flint.stablehlo.reader import read_mlir
from flint.stablehlo.walker import walk
data = Path({str(path)!r}).read_bytes()
read = read_hlo if {path.name!r}.endswith("hlo") else read_mlir
best = 1e9
for _ in range(3):
    started = time.perf_counter()
    walk(read(data))
    best = min(best, time.perf_counter() - started)
print(best)
"""
    return float(_said([PYTHON, "-c", code]))


def _module(path: Path, *arguments: str) -> int:
    """Make a module in a process of its own, which keeps this one small; returns its ops.

    A child's peak memory counts what its parent had when it was forked.
    """
    script = str(ROOT / "benchmarks/modules.py")
    return int(_said([PYTHON, script, str(path), *arguments]).split(" ops")[0].split()[-1])


def _program(path: Path, data: int, layers: int) -> None:
    script = str(ROOT / "benchmarks/growth.py")
    _said([PYTHON, script, str(data), "8", str(layers), str(path)])


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


def traces(folder: Path, module: Path, mesh: str, runs: int) -> Results:
    """``flint convert`` to the traces of all ranks, and a plain write of the same bytes."""
    out = folder / "out"
    command = [*FLINT, "convert", str(module), "-o", str(out), "--mesh", mesh]
    measured = measure(command, runs=runs, before=lambda: shutil.rmtree(out, ignore_errors=True))
    said = subprocess.run([*command, "--json"], capture_output=True, check=True)
    document = json.loads(said.stdout)
    sizes = [path.stat().st_size for path in sorted((out / "et").glob("*.et"))]
    check = measure([*FLINT, "check", str(out)], runs=1)
    shutil.rmtree(out)
    plain = min(plain_write(folder, sizes) for _ in range(3))
    return {
        **measured.to_json(),
        "ranks": len(sizes),
        "distinct_files": document["et"]["distinct_files"],
        "trace_bytes": sum(sizes),
        "save_seconds": document["seconds"]["write"],
        "write_seconds": write_loop(folder, module, mesh),
        "plain_write_seconds": plain,
        "check": check.to_json(),
    }


def write_loop(folder: Path, module: Path, mesh: str) -> float:
    """Seconds of the loop that writes the traces, the best of three: from file to file."""
    shape = tuple(map(int, mesh.split(",")))
    code = f"""
import shutil, time, flint
workload = flint.convert({str(module)!r}, mesh={shape})
best = 1e9
for _ in range(3):
    calls = []
    workload.save({str(folder / "loop")!r}, progress=lambda done, total: calls.append(
        (time.perf_counter(), done)))
    shutil.rmtree({str(folder / "loop")!r})
    (first, before), (last, after) = calls[0], calls[-1]
    best = min(best, (last - first) * after / (after - before))
print(best)
"""
    return float(_said([PYTHON, "-c", code]))


def plain_write(folder: Path, sizes: list[int]) -> float:
    """Seconds to write files of these sizes, one call each, from one buffer."""
    target = folder / "plain"
    target.mkdir()
    buffer = memoryview(os.urandom(max(sizes)))
    started = time.perf_counter()
    for number, size in enumerate(sizes):
        file = os.open(target / str(number), os.O_WRONLY | os.O_CREAT)
        os.write(file, buffer[:size])
        os.close(file)
    seconds = time.perf_counter() - started
    shutil.rmtree(target)
    return seconds


def resnet50(folder: Path, runs: int) -> Results:
    """Per-op conversion of a ResNet-50 training module."""
    path, out = folder / "resnet50.mlirbc", folder / "out"
    subprocess.run(
        [PYTHON, str(ROOT / "benchmarks/train_resnet50.py"), str(path)],
        check=True,
        capture_output=True,
    )
    command = [*FLINT, "convert", str(path), "-o", str(out), "--granularity", "op"]
    measured = measure(command, runs=runs, before=lambda: shutil.rmtree(out, ignore_errors=True))
    code = f"import flint; print(len(flint.convert({str(path)!r}).graph))"
    nodes = int(_said([PYTHON, "-c", code]))
    shutil.rmtree(out)
    return {
        **measured.to_json(),
        "ops": nodes,
        "peer": "hespas (published)",
        "peer_seconds": HESPAS_SECONDS,
        "peer_ops": HESPAS_OPS,
    }


def growth_with_ops(folder: Path) -> Results:
    """Seconds from file to graph and kernels as an unrolled module grows."""
    rows = []
    for layers in (4, 8, 16, 32, 64, 128):
        path = folder / "growing.mlirbc"
        ops = _module(path, "--layers", str(layers))
        rows.append((ops, _converted(path)))
    return _growth("ops", rows)


def growth_with_ranks(folder: Path) -> Results:
    """Seconds to 8 chosen traces as the mesh grows."""
    rows = []
    for data in (8, 64, 512, 4096, 32768, 131072):
        path, out = folder / "growing.mlir", folder / "out"
        _program(path, data, 32)
        command = [*FLINT, "convert", str(path), "-o", str(out), "--ranks", "0-7"]
        rows.append((data * 8, measure(command, runs=3, before=_remover(out))))
    return _growth("ranks", rows)


def growth_with_written_ranks(folder: Path) -> Results:
    """Seconds to the traces of all ranks, of which every one differs."""
    rows = []
    for data in (8, 32, 128, 512):
        path, out = folder / "growing.mlir", folder / "out"
        _program(path, data, 32)
        command = [*FLINT, "convert", str(path), "-o", str(out)]
        rows.append((data * 8, measure(command, runs=3, before=_remover(out))))
        shutil.rmtree(out)
    return _growth("ranks written", rows)


def growth_with_trips(folder: Path) -> Results:
    """Seconds to one trace as a loop runs longer."""
    rows = []
    for layers in (1, 16, 256, 4096, 16384):
        path, out = folder / "growing.mlir", folder / "out"
        _program(path, 64, layers)
        command = [*FLINT, "convert", str(path), "-o", str(out), "--ranks", "0"]
        rows.append((layers, measure(command, runs=3, before=_remover(out))))
    return _growth("trip count", rows)


def _converted(path: Path) -> Measured:
    code = (
        "import flint; from flint.passes import apply; "
        f"apply(flint.convert({str(path)!r}).graph, 'kernel')"
    )
    return measure([PYTHON, "-c", code], runs=3)


def _remover(out: Path) -> Callable[[], None]:
    return lambda: shutil.rmtree(out, ignore_errors=True)


def _growth(axis: str, rows: list[tuple[int, Measured]]) -> Results:
    base = min(item.wall for _, item in rows)
    # The exponent of the upper half, where the start-up time counts for less.
    upper = rows[len(rows) // 2 :]
    return {
        "axis": axis,
        "rows": [[size, item.wall, item.peak] for size, item in rows],
        "exponent": slope([size for size, _ in upper], [item.wall for _, item in upper]),
        "smallest": base,
    }
