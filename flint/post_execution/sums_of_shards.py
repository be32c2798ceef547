"""All-reduces of what a reduce-scatter left, as hybrid shards have them: they shrink with it.

The idea: gradients that are sharded along one axis and replicated along another are scattered
along the first and then summed along the second, one call after the other on the same bytes.  A
profile has no data edges: it is the order and the size that show it.

    details, table, resized = of_shards(graph, {2: smaller}, table)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flint.graph.communication import Communication
from flint.graph.graph import Ints, NodeKind, WorkloadGraph

#: Note on all-reduces of shards.
SUMS: Final = (
    "all-reduces of what a reduce-scatter along a scaled axis left, by their order and size: "
    "resized with it"
)


def of_shards(
    graph: WorkloadGraph,
    scattered: Mapping[int, Communication],
    table: Sequence[Communication],
) -> tuple[Ints, tuple[Communication, ...], NDArray[np.bool_]]:
    """Communications with the all-reduces of resized shards resized, too.

    Args:
        graph: of a measured rank, in the order in which its communications were issued.
        scattered: resized reduce-scatters, by their numbers in the graph's table.
        table: the graph's communications as they are on the larger mesh.

    Returns:
        The graph's ``detail``, a longer table, and which nodes are such all-reduces.
    """
    measured = graph.tables.communications
    details, made = graph.detail.copy(), list(table)
    found = np.zeros(len(graph.kind), np.bool_)
    numbers: dict[tuple[int, int], int] = {}
    last = -1
    for node in np.flatnonzero(graph.kind == NodeKind.COMMUNICATION).tolist():
        number = int(graph.detail[node])
        item = measured[number]
        if item.kind == "reduce_scatter":
            last = number if number in scattered else -1
        if item.kind != "all_reduce" or last < 0:
            continue
        before = measured[last]
        if (item.operand_bytes, item.dtypes) == (before.result_bytes, before.dtypes):
            left = scattered[last].result_bytes
            if (number, last) not in numbers:
                numbers[number, last] = len(made)
                smaller = replace(
                    table[number], operand_bytes=left, result_bytes=left, largest_bytes=0
                )
                made.append(smaller)
            details[node], found[node] = numbers[number, last], True
        last = -1
    return details, tuple(made), found
