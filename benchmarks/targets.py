"""Captures at the optimized level, where the compiler for GPUs is installed.

The idea: every row is the whole ``flint capture --level optimized`` command; the compiler runs in a
child process, so memory is that of parent and child together.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from captures import peak_of_tree
from cases import FLINT, ROOT, remover
from measure import measure

Results = dict[str, Any]

LLAMA3 = ROOT / "models/jax/llama3.py"
#: Name -> step, mesh, axes.
CAPTURES = {
    "8B on 512": ("train_8b", "64,8", "data,model"),
    "8B on 32,768": ("train_8b", "512,8,8", "replica,data,model"),
    "405B on 2,048": ("train_405b", "128,16", "data,model"),
}


def captures(folder: Path, runs: int, *, quick: bool = False) -> Results:
    """The cases of ``CAPTURES`` for H100s; nothing where they cannot be compiled for."""
    if importlib.util.find_spec("jax_cuda12_plugin") is None:
        return {}
    names = list(CAPTURES)[: 1 if quick else None]
    return {name: _case(folder, *CAPTURES[name], runs) for name in names}


def _case(folder: Path, step: str, mesh: str, axes: str, runs: int) -> Results:
    out = folder / "out"
    command = [
        *FLINT,
        "capture",
        f"{LLAMA3}:{step}",
        "--mesh",
        mesh,
        "--axes",
        axes,
        "-o",
        str(out),
    ]
    command += ["--level", "optimized", "--target", "h100", "--ranks", "0-7", "--json"]
    measured = measure(command, runs=runs, before=remover(out))
    remover(out)()
    together = peak_of_tree(command)
    remover(out)()
    return {
        **measured.to_json(),
        "peak": together,
        "graph": measured.document("seconds", "graph"),
        "mesh": mesh,
    }
