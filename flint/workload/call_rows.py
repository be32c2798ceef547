"""The programs that a rank runs in sequence, as rows of a summary.

call_rows(program)[0].name, call_rows(program)[0].flops
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from flint.graph import exact_sums
from flint.graph.graph import NodeKind, WorkloadGraph
from flint.passes.one_of_sequence import ends
from flint.workload.programs import Program


@dataclass(frozen=True, slots=True)
class CallRow:
    """One of the programs, per rank.

    Attributes:
        name: name of the jitted function or op.
        file, line: where the step calls it ("" and 0 unknown).
        jitted: False for an op outside of every jit.
        nodes: compute and communication nodes that run, loops unrolled.
        flops: without transcendentals.
        communications, operand_bytes: calls, and bytes of their operands.
        returned_bytes: bytes of its results.
        donated_bytes: bytes of its inputs whose buffers its results reuse.
        reads: lines at which the host reads a value before the next program is called.
    """

    name: str
    file: str
    line: int
    jitted: bool
    nodes: int
    flops: int
    communications: int
    operand_bytes: int
    returned_bytes: int
    donated_bytes: int
    reads: list[str] = field(default_factory=list)


def call_rows(program: Program) -> tuple[CallRow, ...]:
    """A row per program in sequence; none for a single program."""
    if not program.calls:
        return ()
    graph = program.graph
    last = ends(graph)
    rows = []
    bounds = pairwise([-1, *last.tolist()])
    for call, (before, end) in zip(program.calls, bounds, strict=True):
        nodes = flops = communications = operands = 0
        for block, chosen, times in _parts(graph, np.arange(before + 1, end), 1):
            talks = chosen[block.kind[chosen] == NodeKind.COMMUNICATION]
            table = block.tables.communications
            nodes += times * int((block.kind[chosen] < NodeKind.LOOP).sum())
            flops += times * exact_sums.total(block.flops_by_node()[chosen])
            communications += times * len(talks)
            operands += times * sum(table[item].bytes_in for item in block.detail[talks].tolist())
        first = int(graph.operand_ptr[end])
        returned = graph.operand[first : first + call.outputs]
        rows.append(
            CallRow(
                name=call.name,
                file=call.file,
                line=call.line,
                jitted=call.jitted,
                nodes=nodes,
                flops=flops,
                communications=communications,
                operand_bytes=operands,
                returned_bytes=exact_sums.total(graph.value_bytes[returned]),
                donated_bytes=sum(i.type.bytes for i in call.inputs if i.donated >= 0),
                reads=[f"{read.file}:{read.line}" for read in call.reads],
            )
        )
    return tuple(rows)


def _parts(
    graph: WorkloadGraph, chosen: np.ndarray[tuple[int], np.dtype[np.int64]], times: int
) -> Iterator[tuple[WorkloadGraph, np.ndarray[tuple[int], np.dtype[np.int64]], int]]:
    """Nodes of a block and of all bodies below them, with how often they run."""
    yield graph, chosen, times
    for node in chosen[graph.kind[chosen] == NodeKind.LOOP].tolist():
        loop = graph.loop_of(node)
        inside = np.arange(len(loop.body), dtype=np.int64)
        yield from _parts(loop.body, inside, times * loop.trip_count)
