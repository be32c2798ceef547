"""What XLA's GPU compiler makes of the programs, written to ``h100.json``: kernels, bytes, and how
many of the bytes are partial sums of products.

python -m tests.passes.xla_kernels.record        # needs the extra `gpu`; three minutes
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import flint
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.graph.work import Role
from flint.passes.rematerialize import accessed_bytes
from flint.workload.workload import Workload
from tests.passes.xla_kernels.programs import PROGRAMS

GOLDEN = Path(__file__).with_name("h100.json")


def captured(name: str, **level: str) -> Workload:
    """A program for one device."""
    function, arguments = PROGRAMS[name]
    return flint.capture(mesh=(1,), axes=("device",))(function).capture(*arguments, **level)


def figures(graph: WorkloadGraph) -> tuple[int, int]:
    """Kernels that move something, and bytes that they read and write; loops unrolled."""
    kernels = moved = 0
    for block, times in graph.walk():
        traffic = block.bytes_read + block.bytes_written
        chosen = (traffic > 0) & (block.kind == NodeKind.COMPUTE) & (block.role != Role.ALIAS)
        kernels += times * int(np.count_nonzero(chosen))
        moved += times * int(traffic[chosen].sum())
    return kernels, moved


def partial_sums(graph: WorkloadGraph) -> int:
    """Bytes that are moved because sums of products are cut, loops unrolled.

    XLA writes the parts in f32, one more dim, and another kernel adds them up; uncut, the product
    writes its result in bf16.  Without a GPU the compiler cannot try whether cutting pays.
    """
    moved = 0
    for block, times in graph.walk():
        accessed = accessed_bytes(block)
        for value in range(block.inputs, block.values):
            op = block.tables.ops[block.op[block.producer[value]]]
            kind = block.type_of(value)
            if op.startswith("gemm_fusion") and kind.dtype == "f32" and len(kind.shape) == 3:
                read = int(accessed[block.operand == value].sum())
                moved += times * (kind.bytes + read - 2 * kind.elements // kind.shape[0])
    return moved


def main() -> None:
    """Compile all programs and write the table."""
    found: dict[str, object] = {}
    for name in PROGRAMS:
        workload = captured(name, level="optimized", target="h100")
        assert workload.compiled is not None
        found["compiler"] = workload.compiled.compiler
        found[name] = (*figures(workload.graph), partial_sums(workload.graph))
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
