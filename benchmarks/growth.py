"""How time and memory grow: with ops, with ranks, with written ranks, with a loop's trip count.

The idea: one thing grows and everything else stays.  Each point is a whole command; what the
command says of its own parts is kept beside it, because start-up and imports hide the growth of
small inputs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cases import FLINT, probe, remover, script
from measure import Measured, measure, slope

Results = dict[str, Any]

LAYERS_UNROLLED = (9, 32, 64, 125, 250)
RANKS = (64, 512, 4096, 32768, 262144, 1048576)
RANKS_WRITTEN = (64, 256, 1024, 4096)
TRIP_COUNTS = (1, 16, 64, 256, 1024, 4096)


def grow(folder: Path, *, quick: bool = False) -> dict[str, Results]:
    """All series, by name; ``quick`` takes the two smallest points of each, one run."""
    most, runs = (2, 1) if quick else (None, 3)
    return {
        "ops": with_ops(folder, LAYERS_UNROLLED[:most], runs),
        "ranks": with_ranks(folder, RANKS[:most], runs),
        "written": with_ranks_written(folder, RANKS_WRITTEN[:most], runs),
        "trips": with_trips(folder, TRIP_COUNTS[:most], runs),
    }


def with_ops(folder: Path, layers: Sequence[int], runs: int) -> Results:
    """An unrolled module's ops: file to graph, and graph to kernels."""
    sizes, columns = [], _columns("whole command", "graph", "kernels", "peak")
    for count in layers:
        path = folder / "growing.mlirbc"
        script("modules.py", str(path), "--layers", str(count))
        measured = measure(probe("kernels", str(path)), runs=runs)
        sizes.append(int(measure(probe("stages", str(path)), runs=1, warm=False).document("ops")))
        columns["whole command"].append(measured.wall)
        columns["graph"].append(measured.document("graph"))
        columns["kernels"].append(measured.document("kernels"))
        columns["peak"].append(measured.peak)
    return series("ops", sizes, columns)


def with_ranks(folder: Path, ranks: Sequence[int], runs: int) -> Results:
    """The mesh: 8 chosen traces, and ``flint inspect``; groups as axes, with and without a table.

    A collective_permute has a dense table of all ranks, which must at least be read once.
    """
    columns = _columns("8 traces", "8 traces, no table", "inspect", "peak")
    for count in ranks:
        path, plain, out = folder / "ring.mlirbc", folder / "plain.mlirbc", folder / "out"
        script("mesh_programs.py", str(path), "--ranks", str(count))
        script("mesh_programs.py", str(plain), "--ranks", str(count), "--no-permute")
        with_ring = _converted(path, out, runs, "--ranks", "0-7")
        columns["8 traces"].append(with_ring.wall)
        columns["8 traces, no table"].append(_converted(plain, out, runs, "--ranks", "0-7").wall)
        inspected = measure([*FLINT, "inspect", str(path), "--json"], runs=runs)
        columns["inspect"].append(inspected.wall)
        columns["peak"].append(max(with_ring.peak, inspected.peak))
    return series("ranks", ranks, columns)


def with_ranks_written(folder: Path, ranks: Sequence[int], runs: int) -> Results:
    """The traces of all ranks, of which every one differs."""
    columns = _columns("whole command", "graph", "save", "peak", "bytes")
    for count in ranks:
        path, out = folder / "growing.mlirbc", folder / "out"
        script("mesh_programs.py", str(path), "--ranks", str(count))
        _add(columns, _converted(path, out, runs))
    return series("ranks written", ranks, columns)


def with_trips(folder: Path, trips: Sequence[int], runs: int) -> Results:
    """A loop's trip count: the graph stays, the unrolled traces of 8 ranks grow."""
    columns = _columns("whole command", "graph", "save", "peak", "bytes")
    for count in trips:
        path, out = folder / "growing.mlirbc", folder / "out"
        script("mesh_programs.py", str(path), "--layers", str(count))
        _add(columns, _converted(path, out, runs, "--ranks", "0-7"))
    return series("trip count", trips, columns)


def series(axis: str, sizes: Sequence[int], columns: dict[str, list[float]]) -> Results:
    """A series with the exponents of its columns: fitted to all points, and of the last step."""
    return {
        "axis": axis,
        "sizes": list(sizes),
        "columns": columns,
        "exponents": {name: slope(sizes, values) for name, values in columns.items()},
        "last_exponents": {
            name: slope(sizes[-2:], values[-2:]) for name, values in columns.items()
        },
    }


def _columns(*names: str) -> dict[str, list[float]]:
    return {name: [] for name in names}


def _converted(path: Path, out: Path, runs: int, *options: str) -> Measured:
    command = [*FLINT, "convert", str(path), "-o", str(out), "--json", *options]
    measured = measure(command, runs=runs, before=remover(out))
    shutil.rmtree(out)
    return measured


def _add(columns: dict[str, list[float]], measured: Measured) -> None:
    columns["whole command"].append(measured.wall)
    columns["graph"].append(measured.document("seconds", "graph"))
    columns["save"].append(measured.document("seconds", "write"))
    columns["peak"].append(measured.peak)
    columns["bytes"].append(json.loads(measured.said[-1])["et"]["trace_bytes"])
