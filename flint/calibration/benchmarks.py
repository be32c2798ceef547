"""Microbenchmarks: the kernels of a workload, as plain ops that a framework can time alone.

The idea: a curve is for one class and type, so every distinct product of the workload is timed, and
an elementwise op, a reduction and a copy for every shape that its kernels of these classes read or
write.

    chosen, skipped = benchmarks_of(flint.load("out"), largest=16 << 30)
    seconds = time_kernels(chosen, repeats=20)       # frontends/jax/microbench.py, torch/...
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from flint.calibration.kernels import COLUMNS
from flint.cost.classes import KERNELS, kernel_classes
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.nesting import blocks
from flint.graph.tensor_types import DTYPE_BITS, TensorType
from flint.graph.work import Unit
from flint.host.writing import replacing
from flint.passes import apply
from flint.workload.workload import Workload

Shape = tuple[int, ...]
#: Ops that can be timed -> the class that they represent.
OPS: Final = {
    "matmul": "matmul", "add": "elementwise", "reduce_sum": "reduction", "copy": "movement"
}  # fmt: skip
#: Element types that frameworks have on every device.
TYPES: Final = ("f16", "bf16", "f32")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One op to time.

    Attributes:
        op: one of ``OPS``.
        operands: their shapes.
        dtype: element type.
    """

    op: str
    operands: tuple[Shape, ...]
    dtype: str

    @property
    def bytes(self) -> float:
        """Bytes of all operands; a result is at most as large, except that of an outer product."""
        sizes = [math.prod(shape) for shape in self.operands]
        if self.op == "matmul":
            sizes.append(math.prod(self.operands[0][:-1]) * self.operands[1][-1])
        return sum(sizes) * DTYPE_BITS[self.dtype] / 8


def benchmarks_of(
    workload: Workload, largest: float = math.inf
) -> tuple[tuple[Benchmark, ...], int]:
    """The ops to time for a workload, and how many are left out.

    Args:
        workload: the workload with the kernels.
        largest: bytes; ops that need more, or have another type than ``TYPES``, are left out.
    """
    found: dict[Benchmark, None] = {}
    for program in workload.programs:
        for block in blocks(apply(program.graph, "kernel")):
            found.update(dict.fromkeys(_of_graph(block.graph)))
    fitting = tuple(item for item in found if item.dtype in TYPES and item.bytes <= largest)
    return fitting, len(found) - len(fitting)


def _of_graph(graph: WorkloadGraph) -> Iterator[Benchmark]:
    classes = kernel_classes(graph)
    for index in np.flatnonzero(graph.kind == NodeKind.COMPUTE).tolist():
        node, kind = graph[index], KERNELS[classes[index]]
        for item in node.work.items:
            if item.unit == Unit.MATMUL and item.dims is not None:
                batch, m, n, k = item.dims
                outer = (batch,) if batch > 1 else ()
                yield Benchmark("matmul", ((*outer, m, k), (*outer, k, n)), item.dtype)
        if kind == "elementwise":
            yield from _plain("add", node.result_types, operands=2)
        elif kind == "reduction":
            yield from _plain("reduce_sum", node.operand_types)
        elif kind == "movement":
            yield from _plain("copy", node.result_types)


def _plain(op: str, kinds: Iterable[TensorType], operands: int = 1) -> Iterator[Benchmark]:
    for kind in kinds:
        if kind.shape and kind.elements > 1:
            yield Benchmark(op, (kind.shape,) * operands, kind.dtype)


def write(path: Path, timed: Sequence[tuple[Benchmark, float]]) -> None:
    """Write the timed ops in the form that ``flint calibrate`` reads."""
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(COLUMNS)
        for item, seconds in timed:
            shapes = " ".join("x".join(map(str, shape)) for shape in item.operands)
            lines.writerow((item.op, shapes, item.dtype, f"{seconds:.6g}"))
