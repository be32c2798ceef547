"""Taking carried values out of loops: what a loop no longer makes, another value stands for.

graph = without_carried(graph, loops, [(node, 2, value)])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from flint.graph.graph import Loop, WorkloadGraph
from flint.mesh.ragged import pointer, row_of_entry


def without_carried(
    graph: WorkloadGraph, loops: Sequence[Loop], dropped: Sequence[tuple[int, int, int]]
) -> WorkloadGraph:
    """``graph`` whose loop nodes neither take nor make some carried values.

    Args:
        graph: one block.
        loops: its loops, whose bodies no longer have them.
        dropped: loop node, number among its carried values, and the value that its readers read
            instead, which is none that this takes out, or one before it.
    """
    entries = [int(graph.operand_ptr[node]) + carried for node, carried, _ in dropped]
    results = [int(graph.result_ptr[node]) + carried for node, carried, _ in dropped]
    stands_for = np.arange(graph.values)
    for result, value in sorted(zip(results, (each[2] for each in dropped), strict=True)):
        stands_for[graph.inputs + result] = stands_for[value]
    left = np.ones(graph.values, dtype=bool)
    left[graph.inputs + np.array(results)] = False
    number = (np.cumsum(left) - 1)[stands_for]
    operands, made = row_of_entry(graph.operand_ptr), row_of_entry(graph.result_ptr)
    return replace(
        graph,
        loops=tuple(loops),
        operand_ptr=pointer(np.bincount(np.delete(operands, entries), minlength=len(graph))),
        operand=number[np.delete(graph.operand, entries)],
        result_ptr=pointer(np.bincount(np.delete(made, results), minlength=len(graph))),
        result_type=np.delete(graph.result_type, results),
        outputs=number[graph.outputs],
    )
