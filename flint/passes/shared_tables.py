"""Several graphs with the tables of one.

The idea: a graph names types, ops, lines and communications by their places in tables; graphs that
are joined share one set of them.

    graph = in_tables(graph, TableBuilder())
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.building import TableBuilder
from flint.graph.graph import Ints, NodeKind, WorkloadGraph


def in_tables(graph: WorkloadGraph, tables: TableBuilder) -> WorkloadGraph:
    """``graph`` and its bodies with indices into ``tables``, where its entries are added."""
    own = graph.tables
    types = _numbers([tables.type(item) for item in own.types])
    ops = _numbers([tables.op(*item) for item in own.entries()])
    sources = _numbers([tables.source(item) for item in own.sources])
    gemms = _numbers([*(tables.gemm(dims) for dims in own.gemms), -1])  # -1 stays
    communications = _numbers([tables.communication(item) for item in own.communications])

    def block(part: WorkloadGraph) -> WorkloadGraph:
        talks = part.kind == NodeKind.COMMUNICATION
        return replace(
            part,
            input_type=types[part.input_type],
            result_type=types[part.result_type],
            op=ops[part.op],
            source=sources[part.source],
            work_gemm=gemms[part.work_gemm],
            detail=np.where(talks, communications[np.where(talks, part.detail, 0)], part.detail),
            loops=tuple(replace(loop, body=block(loop.body)) for loop in part.loops),
            conditionals=tuple(
                replace(item, branches=tuple(block(branch) for branch in item.branches))
                for item in part.conditionals
            ),
        )

    return block(graph)


def _numbers(items: list[int]) -> Ints:
    return np.array(items or [0], np.int64)
