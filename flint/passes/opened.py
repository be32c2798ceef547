"""Graphs with their loops opened: each iteration's nodes stand by themselves.

The idea: a recorded run has a time for each iteration, so each needs nodes of its own.  These are
the instances of ``flint.graph.unrolling``, in the same order; values are followed through loops
here, because unrolling only keeps which instance waits for which.

    opened(graph).graph.loops        # ()
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from flint.graph.blocks import is_plain
from flint.graph.graph import NODE_COLUMNS, WORK_COLUMNS, EdgeKind, Ints, WorkloadGraph
from flint.graph.unrolling import Unrolled, unroll
from flint.mesh.ragged import pointer, segments


class Opened(NamedTuple):
    """A graph without loops, and where its nodes come from."""

    graph: WorkloadGraph
    unrolled: Unrolled


def opened(graph: WorkloadGraph) -> Opened:
    """A program's graph with all loops opened.

    Raises:
        FlintError: too many instances.
    """
    unrolled = unroll(graph)
    values = _Values()
    outputs = values.open(graph, -1 - np.arange(graph.inputs, dtype=np.int64))
    template = unrolled.template
    columns: dict[str, Any] = {name: unrolled.column(name)[template] for name in NODE_COLUMNS}
    for ptr, names in (("result_ptr", ("result_type",)), ("work_ptr", WORK_COLUMNS)):
        counts = np.concatenate([np.diff(getattr(one, ptr)) for one in unrolled.graphs])
        entries = segments((np.cumsum(counts) - counts)[template], counts[template])
        columns[ptr] = pointer(counts[template])
        columns |= {name: unrolled.column(name)[entries] for name in names}
    apart = unrolled.dep_kind != EdgeKind.DATA
    waiting = np.bincount(unrolled.consumer[apart], minlength=len(unrolled))
    flat = replace(
        graph,
        **columns,
        operand_ptr=pointer(np.concatenate(values.counts)),
        operand=_numbers(np.concatenate(values.operands), graph.inputs),
        order_ptr=pointer(waiting),
        order_node=unrolled.deps[apart],
        order_kind=unrolled.dep_kind[apart],
        outputs=_numbers(outputs, graph.inputs),
        loops=(),
    )
    return Opened(flat, unrolled)


def _numbers(codes: Ints, inputs: int) -> Ints:
    """Values by their numbers in a graph; codes are as in ``_Values``."""
    found: Ints = np.where(codes < 0, -1 - codes, codes + inputs)
    return found


class _Values:
    """What each instance reads, in order.

    A value's code is the number of the result among all instances, or ``-1 - i`` for input ``i`` of
    the program.

    Attributes:
        counts, operands: number of operands of each instance, and their codes; in pieces.
        made: results so far.
    """

    def __init__(self) -> None:
        nothing = np.zeros(0, np.int64)
        self.counts: list[Ints] = [nothing]
        self.operands: list[Ints] = [nothing]
        self.made = 0

    def open(self, graph: WorkloadGraph, given: Ints) -> Ints:
        """Add the instances of a graph; returns the codes of its outputs.

        Args:
            graph: the graph.
            given: codes of its inputs.
        """
        value = np.concatenate([given, np.zeros(len(graph.result_type), np.int64)])
        done = 0
        for node in [*np.flatnonzero(~is_plain(graph)).tolist(), len(graph)]:
            self._plain(graph, done, node, value)
            done = node + 1
            if node == len(graph):
                break
            loop = graph.loop_of(node)
            codes = value[graph.operands_of(node)]
            for _ in range(loop.trip_count):
                codes = np.concatenate([self.open(loop.body, codes), codes[loop.carried :]])
            low, high = graph.result_ptr[node : node + 2] + graph.inputs
            value[low:high] = codes[: high - low]
        return value[graph.outputs]

    def _plain(self, graph: WorkloadGraph, low: int, high: int, value: Ints) -> None:
        """Add the nodes from ``low`` to ``high``, none of which is a loop."""
        first, last = (int(graph.result_ptr[node]) for node in (low, high))
        value[graph.inputs + first : graph.inputs + last] = self.made + np.arange(last - first)
        self.made += last - first
        begin, end = graph.operand_ptr[low], graph.operand_ptr[high]
        self.counts.append(np.diff(graph.operand_ptr[low : high + 1]))
        self.operands.append(value[graph.operand[begin:end]])
