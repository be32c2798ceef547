"""SCALE-Sim's report as measured durations of a workload's kernels.

The idea: ``COMPUTE_REPORT.csv`` has a line of cycles per layer; the folder's ``kernels.json`` lists
the layers of each kernel, the number of arrays and the clock.

    seconds of a kernel = sum over its layers of count * cycles / clock / arrays

    simulate(workload, "tpu-v4-pod", kernels=read_report(Path("scale")))
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from flint.converters.scale_sim.write import FORMAT
from flint.cost.kernels import Estimator, kernel_seconds
from flint.cost.measured import Measured
from flint.errors import UsageError
from flint.host.packed_files import check_plain, read_once
from flint.host.readable import why_unreadable

REPORT: Final = "COMPUTE_REPORT.csv"

#: The most bytes of a file, more than a million layers need.
_MAX_BYTES: Final = 1 << 28
_MOST: Final = 2**53
_Natural = Annotated[int, Meta(ge=0, le=_MOST)]
_Count = Annotated[int, Meta(ge=1, le=_MOST)]


class _Kernel(Struct):
    """A kernel, identified as in a graph; ``layers``: (layer, count)."""

    op: str
    operands: str
    results: str
    layers: list[tuple[_Natural, _Natural]]


class _Kernels(Struct):
    """The folder's ``kernels.json``; ``clock`` is in Hz."""

    format: str
    clock: Annotated[float, Meta(gt=0)]
    arrays: _Count
    layers: _Natural
    kernels: list[_Kernel]


def read_report(folder: Path, base: Estimator = kernel_seconds) -> Measured:
    """Durations of the kernels of a folder that ``write_scale_sim`` wrote and SCALE-Sim ran.

    The report is the only one in the folder or below it (SCALE-Sim writes into a folder of its
    run's name).

    Args:
        folder: the folder with both.
        base: estimator for kernels that are not in the report.

    Raises:
        UsageError: a file is missing or damaged, or has other layers.
    """
    document = _kernels(folder / "kernels.json")
    cycles = _cycles(_report(folder), document.layers)
    second = document.clock * document.arrays
    table = {
        (kernel.op, kernel.operands, kernel.results): sum(
            count * cycles[layer] for layer, count in kernel.layers
        )
        / second
        for kernel in document.kernels
    }
    return Measured(table, base)


def _content(path: Path) -> bytes:
    check_plain(path, path.stat())
    return read_once(path, _MAX_BYTES).data


def _kernels(path: Path) -> _Kernels:
    try:
        content = msgspec.json.decode(_content(path))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise UsageError(
                f"{path}: is not of the form {FORMAT!r}; flint inspect --scale-sim writes it"
            )
        document = msgspec.convert(content, _Kernels)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}: cannot be read ({why_unreadable(error)}); flint inspect --scale-sim writes it"
        ) from error
    for kernel in document.kernels:
        for layer, _ in kernel.layers:
            if layer >= document.layers:
                raise UsageError(f"{path}: {kernel.op} is of layer {layer}, which does not exist")
    return document


def _report(folder: Path) -> Path:
    found = sorted(folder.rglob(REPORT))
    if len(found) != 1:
        what = "no" if not found else f"{len(found)} files"
        raise UsageError(
            f"{folder}: {what} {REPORT} in it or below: run SCALE-Sim once, with -p {folder}"
        )
    return found[0]


def _cycles(path: Path, layers: int) -> list[int]:
    """Cycles per layer."""
    try:
        lines = list(csv.reader(io.StringIO(_content(path).decode("utf-8"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: cannot be read: {why_unreadable(error)}") from error
    columns = [name.strip() for name in lines[0]] if lines else []
    if columns[:1] != ["LayerID"] or "Total Cycles" not in columns:
        raise UsageError(
            f"{path} is not a compute report of SCALE-Sim (LayerID, Total Cycles, ...)"
        )
    column = columns.index("Total Cycles")
    found: list[int] = []
    for number, line in enumerate(lines[1:], 2):
        try:
            layer, cycles = int(line[0]), float(line[column])
            if layer != len(found) or not 0 <= cycles <= _MOST:
                raise ValueError
        except (ValueError, IndexError):
            raise UsageError(
                f"{path}:{number}: expected layer {len(found)} and its cycles"
            ) from None
        found.append(round(cycles))
    if len(found) != layers:
        raise UsageError(f"{path}: has {len(found)} layers, gemm.csv beside it has {layers}")
    return found
