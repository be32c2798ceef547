"""The tortured jobs: commands that write, each in a separate folder, and what they may leave.

The idea: a job's folder holds its inputs; what the command writes is absent or whole afterwards,
whatever happened.  A folder that was there before is still there: the old one or the new one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import flint
from flint.errors import FlintError
from flint.sweeps.running import _is_result
from flint.workload.folder import read_document
from flint.workload.sealing import broken

DATA = Path(__file__).parents[1] / "data/stablehlo"
MODULE = DATA / "pipeline_ppermute_8x8.mlirbc"

JAX_STEP = """
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P
def setup(mesh):
    return (jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NamedSharding(mesh, P("data"))),)
def step(x):
    return jnp.sum(x @ x.T)
"""
TORCH_STEP = """
import torch, torch.distributed as dist
def setup(mesh):
    return (torch.ones(16, 16, device=mesh.device_type),)
def step(x):
    y = x @ x
    dist.all_reduce(y)
    return y
"""


@dataclass(frozen=True, slots=True)
class Job:
    """A command.

    Attributes:
        name: for the table.
        arguments: of ``flint``.
        prepare: puts what it reads into its folder.
        results: names of what it writes.
        replaces: whether a result is there before.
    """

    name: str
    arguments: tuple[str, ...]
    prepare: Callable[[Path, Path], None]
    results: tuple[str, ...]
    replaces: bool = False


def _nothing(place: Path, kept: Path) -> None:
    del place, kept


def _folder(name: str) -> Callable[[Path, Path], None]:
    """A workload folder of that name, made once and copied."""

    def prepare(place: Path, kept: Path) -> None:
        if not kept.is_dir():
            flint.convert(MODULE, mesh=(8, 8), axes=("stage", "data")).save(kept, ranks="0-1")
        shutil.copytree(kept, place / name)

    return prepare


def _steps(place: Path, kept: Path) -> None:
    del kept
    (place / "jax_step.py").write_text(JAX_STEP)
    (place / "torch_step.py").write_text(TORCH_STEP)


def _capture(name: str, framework: str, *options: str) -> Job:
    step = f"{framework}_step.py:step"
    return Job(
        f"capture, {name}",
        ("capture", step, "--setup", "setup", "--mesh", "4", "--axes", "data", *options,
         "-o", "out"),
        _steps, ("out",),
    )  # fmt: skip


def _sweep(name: str, framework: str) -> Job:
    step = f"{framework}_step.py:step"
    meshes = ("--mesh", "2", "--mesh", "4")
    return Job(
        f"sweep, {name}",
        ("sweep", step, "--setup", "setup", *meshes, "--axes", "data", "--jobs", "2", "-o", "out"),
        _steps, ("out",),
    )  # fmt: skip


PICTURES = ("--html", "r.html", "--timeline", "t.json", "--network", "n.svg")
JOBS = (
    Job("convert", ("convert", str(MODULE), "--mesh", "8,8", "-o", "out"), _nothing, ("out",)),
    Job(
        "convert over a folder", ("convert", str(MODULE), "--mesh", "8,8", "-o", "out"),
        _folder("out"), ("out",), replaces=True,
    ),
    Job("simulate", ("simulate", "in", *PICTURES), _folder("in"), ("r.html", "t.json", "n.svg")),
    _capture("JAX", "jax"),
    _capture("PyTorch", "torch"),
    _sweep("JAX", "jax"),
    _sweep("PyTorch", "torch"),
)  # fmt: skip


def damage(job: Job, place: Path) -> Iterator[str]:
    """What a job has left that is neither absent nor whole."""
    for name in job.results:
        path = place / name
        if not path.exists():
            if job.replaces:
                yield f"{name}: what was there before is gone"
        elif job.name.startswith("sweep"):
            yield from _sweep_damage(path)
        elif path.is_dir():
            yield from _folder_damage(path)
        else:
            yield from _file_damage(path)


def _folder_damage(folder: Path) -> Iterator[str]:
    try:
        document = read_document(folder)
        flint.load(folder)
        for name, what in broken(folder, document.files or {}, document.traces):
            yield f"{folder.name}/{name} {what}"
    except FlintError as error:
        yield f"{folder.name}: {error}"


def _file_damage(path: Path) -> Iterator[str]:
    text = path.read_text(errors="replace")
    if path.suffix == ".json":
        try:
            json.loads(text)
        except ValueError:
            yield f"{path.name}: no JSON"
    elif not text.rstrip().endswith({".html": "</html>", ".svg": "</svg>"}[path.suffix]):
        yield f"{path.name}: has no end"


def _sweep_damage(folder: Path) -> Iterator[str]:
    for path in folder.glob("workloads/*"):
        if ".flint-" not in path.name:
            yield from _folder_damage(path)
    for path in folder.glob("points/*.json"):
        if not _is_result(json.loads(path.read_text() or "{}")):
            yield f"points/{path.name}: no result"
    for name in ("results.json", "sweep.json", "sweep.html"):
        if (folder / name).exists():
            yield from _file_damage(folder / name)
