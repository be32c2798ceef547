"""Captures of JAX steps: what a user waits for, what XLA's partitioner has of it, how it grows.

The idea: every row is the whole ``flint capture`` command, processes started included.  The
partitioner runs in a child of that command, so memory is that of both together, looked at from
outside while they run; the time that the parent waits for the child's result is the part that no
code of ours can shorten.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import FLINT, ROOT, probe, remover
from growth import series
from measure import Measured, measure

Results = dict[str, Any]

LLAMA3 = ROOT / "models/jax/llama3.py"
THREE = "replica,data,model"
#: Name -> step, mesh, axes.
CAPTURES = {
    "8B": ("train_8b", "64,8", "data,model"),
    "405B": ("train_405b", "128,16", "data,model"),
    "405B on 16,384": ("train_405b", "128,8,16", THREE),
    "8B on 1,048,576": ("train_8b", "16384,8,8", THREE),
}
#: Replicas of 8 x 8 devices.
REPLICAS = (1, 8, 64, 512, 2048, 16384)
LAYERS = (10, 20, 40, 80)
_LOOK = 0.02


def captures(folder: Path, runs: int, *, quick: bool = False) -> Results:
    """The cases of ``CAPTURES``: graph and the traces of 8 ranks."""
    names = list(CAPTURES)[: 2 if quick else None]
    return {name: _case(folder, *CAPTURES[name], runs) for name in names}


def everybody(folder: Path) -> Results:
    """All traces of the 405B step on 16,384 devices, against plain writes of as many bytes."""
    out = folder / "out"
    command = [*_capture(*CAPTURES["405B on 16,384"], out), "--json"]
    measured = measure(command, runs=1, warm=False)
    manifest = json.loads(measured.said[-1])["et"]
    shutil.rmtree(out)
    os.sync()
    return {
        **measured.to_json(),
        "ranks": manifest["files"],
        "bytes": manifest["bytes"],
        "save": measured.document("seconds", "write"),
        "plain": _plain(out, manifest["files"], manifest["bytes"]),
    }


def with_devices(folder: Path, replicas: Sequence[int] = REPLICAS, runs: int = 3) -> Results:
    """Llama-3 8B on replicas of 8 x 8 devices: capture, graph and the traces of 8 ranks."""
    columns: dict[str, list[float]] = {"whole command": [], "partitioner": [], "peak": []}
    for count in replicas:
        item = _case(folder, "train_8b", f"{count},8,8", THREE, runs)
        _add(columns, item)
    return series("devices", [64 * count for count in replicas], columns)


def with_layers(folder: Path, layers: Sequence[int] = LAYERS, runs: int = 3) -> Results:
    """Llama-3 70B on 64 x 8 with its blocks written one after another instead of in a scan."""
    columns: dict[str, list[float]] = {"whole command": [], "partitioner": [], "peak": []}
    for count in layers:
        step = folder / "unrolled.py"
        step.write_text(
            "from dataclasses import replace\n"
            "from flint.models.jax.llama3 import LLAMA3_70B, training\n"
            f"step = training(replace(LLAMA3_70B, scan=False, layers={count}), mesh=(64, 8))\n"
        )
        _add(columns, _case(folder, "step", "64,8", "data,model", runs, file=step))
    return series("unrolled layers", layers, columns)


def _case(folder: Path, step: str, mesh: str, axes: str, runs: int, file: Path = LLAMA3) -> Results:
    out = folder / "out"
    command = [*_capture(step, mesh, axes, out, file), "--ranks", "0-7", "--json"]
    measured: Measured = measure(command, runs=runs, before=remover(out))
    remover(out)()
    together = peak_of_tree(command)
    remover(out)()
    stages = measure(probe("partitioner", f"{file}:{step}", mesh, axes), runs=runs, warm=False)
    return {
        **measured.to_json(),
        "peak": together,
        "graph": measured.document("seconds", "graph"),
        "partitioner": stages.document("partitioner"),
        "nodes": int(stages.document("nodes")),
        "mesh": mesh,
    }


def _capture(step: str, mesh: str, axes: str, out: Path, file: Path = LLAMA3) -> list[str]:
    return [*FLINT, "capture", f"{file}:{step}", "--mesh", mesh, "--axes", axes, "-o", str(out)]


def _add(columns: dict[str, list[float]], item: Results) -> None:
    columns["whole command"].append(item["wall"])
    columns["partitioner"].append(item["partitioner"])
    columns["peak"].append(item["peak"])


def peak_of_tree(command: Sequence[str]) -> int:
    """Resident bytes of a process and its descendants together, the most that was seen.

    Pages that they share (libraries) count once for each: an upper bound.

    Raises:
        RuntimeError: the command failed.
    """
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    most = 0
    ended = threading.Event()

    def look() -> None:
        nonlocal most
        while not ended.is_set():
            most = max(most, _resident(process.pid))
            time.sleep(_LOOK)

    watcher = threading.Thread(target=look)
    watcher.start()
    status = process.wait()
    ended.set()
    watcher.join()
    if status:
        raise RuntimeError(f"{' '.join(command)}: status {status}")
    return most


def _resident(process: int) -> int:
    total, waiting = 0, [process]
    while waiting:
        number = waiting.pop()
        try:
            pages = Path(f"/proc/{number}/statm").read_text().split()[1]
            for task in Path(f"/proc/{number}/task").iterdir():
                waiting.extend(map(int, (task / "children").read_text().split()))
        except (OSError, IndexError):  # it has just ended
            continue
        total += int(pages) * os.sysconf("SC_PAGE_SIZE")
    return total


def _plain(folder: Path, files: int, size: int) -> float:
    """Seconds to write that many files of that size in all, one call each, from one buffer."""
    folder.mkdir()
    buffer = bytes(size // files)
    begin = time.perf_counter()
    for number in range(files):
        file = os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT, 0o666)
        os.write(file, buffer)
        os.close(file)
    seconds = time.perf_counter() - begin
    shutil.rmtree(folder)
    return seconds
