"""Captures of PyTorch steps: what a user waits for, memory of all processes, growth.

The idea: every row is the whole ``flint capture`` command with the traces of 8 ranks.  A few ranks
are recorded, each in a process of its own; memory is that of the largest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import FLINT, ROOT, remover
from growth import series
from measure import measure

Results = dict[str, Any]

LLAMA3 = ROOT / "models/torch/llama3.py"
#: Name -> step, mesh.
CAPTURES = {
    "8B on 512": ("train_8b", "64,8"),
    "8B on 32,768": ("train_8b", "4096,8"),
    "405B on 2,048": ("train_405b", "256,8"),
}
DATA_PARALLEL = (8, 64, 512, 4096)
LAYERS = (4, 8, 16, 32)


def captures(folder: Path, runs: int, *, quick: bool = False) -> Results:
    """The cases of ``CAPTURES``."""
    names = list(CAPTURES)[: 1 if quick else None]
    return {name: _case(folder, LLAMA3, *CAPTURES[name], runs) for name in names}


def with_ranks(folder: Path, sizes: Sequence[int] = DATA_PARALLEL, runs: int = 1) -> Results:
    """Llama-3 8B, FSDP2 over more and more ranks, tensor parallel over 8."""
    columns = _columns()
    for size in sizes:
        _add(columns, _case(folder, LLAMA3, "train_8b", f"{size},8", runs))
    return series("ranks", [8 * size for size in sizes], columns)


def with_layers(folder: Path, layers: Sequence[int] = LAYERS, runs: int = 1) -> Results:
    """Llama-3 8B's block more and more often, on 64 x 8."""
    columns = _columns()
    for count in layers:
        step = folder / "layers.py"
        step.write_text(
            "from dataclasses import replace\n"
            "from flint.models.torch.llama3 import LLAMA3_8B, training\n"
            f"step = training(replace(LLAMA3_8B, layers={count}), mesh=(64, 8))\n"
        )
        _add(columns, _case(folder, step, "step", "64,8", runs))
    return series("layers", layers, columns)


def _case(folder: Path, file: Path, step: str, mesh: str, runs: int) -> Results:
    out = folder / "out"
    command = [*FLINT, "capture", f"{file}:{step}", "--mesh", mesh, "--ranks", "0-7"]
    command += ["-o", str(out), "--json"]
    measured = measure(command, runs=runs, warm=False, before=remover(out))
    remover(out)()
    return {
        **measured.to_json(),
        "largest": measured.peak,
        "graph": measured.document("seconds", "graph"),
        "mesh": mesh,
    }


def _columns() -> dict[str, list[float]]:
    return {"whole command": [], "peak": []}


def _add(columns: dict[str, list[float]], item: Results) -> None:
    columns["whole command"].append(item["wall"])
    columns["peak"].append(item["peak"])
