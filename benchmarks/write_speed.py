"""How fast traces are written, against plain writes of the same bytes to the same disk.

    python benchmarks/write_speed.py [FOLDER]

Two workloads on 512 ranks: one program of 30,000 nodes whose traces are all identical (hard links),
and one of about 1 MB per rank in which every rank differs (two permutes in 32 iterations).  The
third writes 64 ranks of a mesh of 1,048,576.  Times are wall times, the best of three runs, and
include everything from unrolling on.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from flint.converters.chakra.write.writer import write
from flint.cost.systems import load_system
from flint.graph.building import GraphBuilder, TableBuilder
from flint.graph.communication import Communication
from flint.graph.graph import Loop, WorkloadGraph, with_tables
from flint.graph.tensor_types import tensor_type
from flint.graph.work import Role, Unit, Work, WorkItem
from flint.mesh.groups import Groups, along_axes
from flint.mesh.mesh import Mesh
from flint.mesh.permutation import Permutation, permutation

TENSOR = tensor_type((1024, 1024), "bf16")
WORK = Work((WorkItem(Unit.MATMUL, "bf16", 2 * 1024**3, (1, 1024, 1024, 1024)),), 4 << 20, 2 << 20)


def program(
    groups: Groups, rings: list[Permutation], iterations: int, kernels: int, reductions: int
) -> WorkloadGraph:
    """A loop of ``kernels`` chained kernels, ``reductions`` all-reduces and a permute per ring."""
    tables = TableBuilder()
    body = GraphBuilder(tables)
    value = body.input(tables.type(TENSOR))
    size = (TENSOR.bytes,)
    for index in range(kernels):
        (value,) = body.compute("dot_general", Role.CONTRACTION, (value,), (TENSOR,), WORK)
        if index % max(1, kernels // reductions) == 0:
            item = Communication("all_reduce", "add", groups, None, size, size, ("bf16",))
            (value,) = body.communication(item, (value,), (TENSOR,))
    for ring in rings:
        item = Communication("collective_permute", None, None, ring, size, size, ("bf16",))
        (value,) = body.communication(item, (value,), (TENSOR,))
    outer = GraphBuilder(tables)
    start = outer.input(tables.type(TENSOR))
    results = outer.loop(Loop(body.finish((value,)), 1, iterations), (start,))
    return with_tables(outer.finish(results), tables.finish())


def ring(mesh: Mesh, axis: int) -> Permutation:
    """Every rank to its next neighbour along an axis."""
    grid = np.arange(mesh.size).reshape(mesh.shape)
    pairs = np.stack([grid, np.roll(grid, -1, axis)], axis=-1)
    return permutation(mesh.size, pairs.reshape(-1, 2))


def plain_seconds(folder: Path, source: Path) -> tuple[float, int]:
    """Seconds and bytes of writing the distinct traces of ``source`` once more, as they are."""
    distinct = {path.stat().st_ino: path for path in (source / "et").glob("*.et")}
    contents = [path.read_bytes() for path in distinct.values()]
    target = folder / "plain"
    target.mkdir()
    begin = time.perf_counter()
    for number, content in enumerate(contents):
        with open(target / str(number), "wb", buffering=0) as file:
            file.write(content)
    seconds = time.perf_counter() - begin
    shutil.rmtree(target)
    return seconds, sum(map(len, contents))


def measure(name: str, graph: WorkloadGraph, mesh: Mesh, ranks: int | None, home: Path) -> None:
    """Print one row."""
    system = load_system("dgx-h100")
    best, plain, size = float("inf"), float("inf"), 0
    for _ in range(3):
        folder = Path(tempfile.mkdtemp(dir=home))
        everybody = np.arange(mesh.size)
        begin = time.perf_counter()
        manifest = write(
            [(graph, everybody)],
            mesh,
            folder,
            system=system,
            ranks=None if ranks is None else everybody[:ranks],
        )
        best = min(best, time.perf_counter() - begin)
        seconds, size = plain_seconds(folder, folder)
        plain = min(plain, seconds)
        shutil.rmtree(folder)
    print(
        f"{name:24} {manifest.files:6} ranks {manifest.distinct_files:6} distinct "
        f"{size / 1e6:8.1f} MB  {best:6.2f} s  {size / best / 1e6:7.0f} MB/s  plain {plain:6.2f} s "
        f"{size / plain / 1e6:7.0f} MB/s  {plain / best:5.0%}"
    )


def main() -> None:
    """Measure and print."""
    home = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.gettempdir())
    os.makedirs(home, exist_ok=True)
    mesh = Mesh((64, 8), ("data", "model"))
    data = along_axes(mesh, ("data",))
    same = program(data, [], 30, 900, 100)
    measure("identical", same, mesh, None, home)
    rings = [ring(mesh, 0), ring(mesh, 1)]
    measure("two permutes, 32 times", program(data, rings, 32, 380, 20), mesh, None, home)
    large = Mesh((32768, 32), ("data", "model"))
    groups = along_axes(large, ("data",))
    measure("64 of 1,048,576", program(groups, [ring(large, 1)], 32, 280, 20), large, 64, home)


if __name__ == "__main__":
    main()
