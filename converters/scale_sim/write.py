"""A workload's matrix products as the input files of SCALE-Sim.

The idea: SCALE-Sim simulates layers one by one without a graph, so every distinct product is one
layer, and an additional file lists the layers of each kernel.

    write_scale_sim(flint.load("out"), Path("scale"), "tpu-v4-pod")

    scale/gemm.csv        layer, m, n, k:                   scale.py -i gemm -t gemm.csv
    scale/topology.csv    the same as convolutions:         scale.py -t topology.csv
    scale/scale.cfg       the system's array and memory:    scale.py -c scale.cfg
    scale/kernels.json    op, operands and results of each kernel, its layers and how many of each

A batched product is that many layers; a convolution is its equivalent product.  The formats are
those of SCALE-Sim v2 and v3 (README and ``topologies/`` there).
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

from flint.cost.hardware import System, SystolicArray
from flint.cost.measured import Key, key_of
from flint.cost.systems import load_system
from flint.errors import FlintError, UsageError
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.nesting import blocks
from flint.graph.nodes import Node
from flint.graph.tensor_types import DTYPE_BITS
from flint.graph.work import Unit
from flint.host.writing import replacing_folder
from flint.simulation.preparing import prepare, program_graphs
from flint.workload.workload import Workload

#: The format mark in ``kernels.json``.
FORMAT: Final = "flint-scale-sim-1"
_GEMM: Final = ("Layer", "M", "N", "K")
_TOPOLOGY: Final = (
    "Layer name", "IFMAP Height", "IFMAP Width", "Filter Height", "Filter Width", "Channels",
    "Num Filter", "Strides",
)  # fmt: skip


def write_scale_sim(
    workload: Workload, folder: Path, system: str | System, granularity: str = "kernel"
) -> int:
    """Write the files of all programs' products; the folder is replaced.

    Args:
        workload: the workload.
        folder: where to write.
        system: the system with the array, by name, as a TOML file or loaded.
        granularity: granularity of the kernels, as in the later simulation.

    Returns:
        The number of layers.

    Raises:
        UsageError: the system describes no array, or the program is not partitioned.
        FlintError: there is no product, or the folder cannot be written.
    """
    workload.check_partitioned("SCALE-Sim needs")
    described = system if isinstance(system, System) else load_system(system)
    array = described.accelerator.systolic
    if array is None:
        raise UsageError(
            f"{described.name} states no systolic array: add a table [accelerator.systolic] to its "
            "description (docs/simulation.md)"
        )
    layers: dict[tuple[int, int, int], int] = {}
    kernels: dict[Key, dict[int, int]] = {}
    widths: set[float] = set()
    written = program_graphs(workload, granularity)
    for graph in prepare(workload, written, granularity, ()).graphs:
        for block in blocks(graph):
            for node in _multiplying(block.graph):
                made: Counter[int] = Counter()
                for item in node.work.items:
                    if item.unit == Unit.MATMUL and item.dims is not None:
                        batch, *dims = item.dims
                        m, n, k = dims
                        made[layers.setdefault((m, n, k), len(layers))] += batch
                        widths.add(DTYPE_BITS[item.dtype] / 8)
                if made:
                    kernels[key_of(node)] = dict(made)
    if not layers:
        raise FlintError("the workload has no matrix product to write")
    with replacing_folder(folder) as partial:
        gemm = [(f"g{i}", *dims) for i, dims in enumerate(layers)]
        _write(partial / "gemm.csv", _GEMM, gemm)
        _write(
            partial / "topology.csv",
            _TOPOLOGY,
            [(name, m, k, 1, k, 1, n, 1) for name, m, n, k in gemm],
        )
        (partial / "scale.cfg").write_text(_configuration(array, max(widths)))
        (partial / "kernels.json").write_text(json.dumps(_document(kernels, array, len(gemm))))
    return len(layers)


def _multiplying(graph: WorkloadGraph) -> list[Node]:
    return [
        node
        for node in graph
        if node.kind == NodeKind.COMPUTE and any(i.unit == Unit.MATMUL for i in node.work.items)
    ]


def _write(path: Path, columns: tuple[str, ...], rows: list[Any]) -> None:
    """SCALE-Sim's CSV: every line ends with a comma."""
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator=",\n").writerows([columns, *rows])


def _document(
    kernels: dict[Key, dict[int, int]], array: SystolicArray, layers: int
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "clock": array.clock,
        "arrays": array.arrays,
        "layers": layers,
        "kernels": [
            {"op": op, "operands": operands, "results": results, "layers": sorted(made.items())}
            for (op, operands, results), made in kernels.items()
        ],
    }


def _configuration(array: SystolicArray, width: float) -> str:
    """SCALE-Sim's configuration; sizes in elements, as it counts them.

    Args:
        array: the array.
        width: bytes of the widest element.
    """
    memory = array.memory
    sizes, mode, bandwidth = [1 << 20] * 3, "CALC", 10
    if memory is not None:
        sizes = [
            max(1, round(size / width / 1024))
            for size in (memory.ifmap, memory.filter, memory.ofmap)
        ]
        mode, bandwidth = "USER", max(1, round(memory.bandwidth / array.clock / width))
    banks = "\n".join(
        f"{name}CustomLayout: False\n{name}SRAMBankBandwidth: {bandwidth}\n"
        f"{name}SRAMBankNum: 1\n{name}SRAMBankPort: 2"
        for name in ("Ifmap", "Filter")
    )
    return f"""[general]
run_name = flint

[architecture_presets]
ArrayHeight: {array.rows}
ArrayWidth: {array.columns}
IfmapSramSzkB: {sizes[0]}
FilterSramSzkB: {sizes[1]}
OfmapSramSzkB: {sizes[2]}
IfmapOffset: 0
FilterOffset: 10000000
OfmapOffset: 20000000
Dataflow: {array.dataflow}
Bandwidth: {bandwidth}
MemoryBanks: 1
ReadRequestBuffer: 512
WriteRequestBuffer: 512

[layout]
{banks}

[sparsity]
SparsitySupport: false
SparseRep: ellpack_block
OptimizedMapping: false
BlockSize: 8
RandomNumberGeneratorSeed: 40

[run_presets]
InterfaceBandwidth: {mode}
UseRamulatorTrace: False
"""
