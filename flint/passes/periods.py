"""Fewer periods of a part that repeats, in a graph that has no loops there.

The idea: a program with fewer microbatches is the same except for the last periods, which it lacks;
nodes after them have the same operands as before, counted from the end.

    [part] = periods(graph)
    fewer_periods(graph, part, 10)          # ten periods of it, however many there were
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NODE_COLUMNS, WORK_COLUMNS, Ints, WorkloadGraph
from flint.graph.periods import Periods
from flint.passes.columns import gathered, take_rows


def fewer_periods(graph: WorkloadGraph, part: Periods, count: int) -> WorkloadGraph:
    """The graph with the first ``count`` periods of a part, at least one.

    Nodes after the part that read a value of its periods read that of the period at the same
    distance from the end, or of the first one if there is none.  No node's cost changes: a node
    that combines the results of all periods still moves all of them.
    """
    gone = part.count - count
    cut, end = part.end - gone * part.nodes, part.end
    kept = np.concatenate([np.arange(cut), np.arange(end, len(graph))]).astype(np.int64)
    produced = graph.inputs + graph.result_ptr
    each = int(produced[end] - produced[end - part.nodes])
    # How many periods earlier a node's replacement is, and how many nodes and values that is.
    period = (np.arange(len(graph), dtype=np.int64) - part.start) // part.nodes
    back = np.where(period < 0, 0, np.minimum(period, gone))
    back[end:] = gone
    back = np.append(back, 0)  # of inputs, whose producer is -1

    def columns(rows: Ints, moved: bool) -> dict[str, NDArray[Any]]:
        operand_ptr, operands = take_rows(graph.operand_ptr, rows)
        order_ptr, orders = take_rows(graph.order_ptr, rows)
        value, first = graph.operand[operands], graph.order_node[orders]
        if moved:
            value = value - back[graph.producer[value]] * each
            first = first - back[first] * part.nodes
        return {"operand_ptr": operand_ptr, "operand": value, "order_ptr": order_ptr,
                "order_node": first, "order_kind": graph.order_kind[orders]}  # fmt: skip

    head, tail = columns(kept[:cut], False), columns(kept[cut:], True)
    edges: dict[str, Any] = {
        name: np.concatenate([head[name], tail[name][1:] + head[name][-1]])
        if name.endswith("_ptr")
        else np.concatenate([head[name], tail[name]])
        for name in head
    }
    result_ptr, results = take_rows(graph.result_ptr, kept)
    work_ptr, works = take_rows(graph.work_ptr, kept)
    return replace(
        graph,
        **gathered(graph, NODE_COLUMNS, kept),
        **edges,
        result_ptr=result_ptr,
        result_type=graph.result_type[results],
        work_ptr=work_ptr,
        **gathered(graph, WORK_COLUMNS, works),
        outputs=graph.outputs - back[graph.producer[graph.outputs]] * each,
    )
