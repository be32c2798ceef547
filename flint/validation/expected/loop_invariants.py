"""Captured ops whose result does not depend on the iteration, or does not depend on anything.

The idea: an op of a loop's body computes the same each time if nothing that it reads, directly or
through other ops, changes from one iteration to the next.  The graph shows which of a body's inputs
change.  The possible numbers of runs follow from how often an op is captured and which of its loops
it may leave.  An op that reads no input and does not depend on the rank is a constant, which
compilers know.

    Invariants(expected).runs([4, 9, 14, 19])      # [4, 1]: in the loop, or once before it
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

import numpy as np

from flint.graph.graph import Loop, NodeKind, WorkloadGraph
from flint.validation.expected.duplicates import origin
from flint.validation.expected.ops import Expected

#: Prefixes of ops that may have another result each time, or have side effects.
_IMPURE = ("rng", "custom_call", "infeed", "outfeed", "send", "recv")
#: The inputs of an op that may change each time: bits of all inputs.
_ANYTHING = -1
#: Ops that read the rank.
_WHO = ("partition_id", "replica_id")


class Invariants:
    """Which of a rank's ops do not depend on the iteration."""

    def __init__(self, expected: Expected) -> None:
        self.expected = expected
        self._read: dict[int, list[int]] = {}

    def runs(self, positions: Sequence[int]) -> list[int]:
        """How often a captured op may run: as captured, and before each loop that it may leave.

        Args:
            positions: positions of all runs of one node.
        """
        expected = self.expected
        instances = np.unique(expected.instance[list(positions)])
        found = [len(instances)]
        graph, node = int(expected.graph[positions[0]]), int(expected.node[positions[0]])
        reads = self._reads(graph)[self._first_result(graph, node)]
        while (above := expected.above[graph])[0] >= 0:
            view = expected.graphs[above[0]][above[1]]
            if view.loop is None or reads & ~unchanged(view.loop):
                break
            outer = self._reads(above[0])
            reads = _union(outer[v] for n, v in enumerate(view.operands) if reads >> n & 1)
            instances = np.unique(expected.parent[instances])
            found.append(len(instances))
            graph = above[0]
        return found

    def constant(self, position: int) -> bool:
        """Whether a captured op's result is the same constant on all ranks."""
        graph, node = int(self.expected.graph[position]), int(self.expected.node[position])
        return not self._reads(graph)[self._first_result(graph, node)]

    def known(self, graph: int, value: int) -> bool:
        """Whether a value of a graph is a constant."""
        return not self._reads(graph)[value]

    def _first_result(self, graph: int, node: int) -> int:
        of = self.expected.graphs[graph]
        return of.inputs + int(of.result_ptr[node])

    def _reads(self, number: int) -> list[int]:
        """For every value of a graph, the inputs that it depends on, as bits."""
        if number not in self._read:
            self._read[number] = _reads(self.expected.graphs[number])
        return self._read[number]


def _reads(graph: WorkloadGraph) -> list[int]:
    found = [1 << n for n in range(graph.inputs)]
    kinds = (NodeKind.COMPUTE, NodeKind.COMMUNICATION)
    rank = 1 << graph.inputs  # as if it were one more input
    for node in range(len(graph)):
        name = graph.tables.ops[int(graph.op[node])]
        pure = graph.kind[node] in kinds and not name.startswith(_IMPURE)
        operands = graph.operands_of(node).tolist()
        reads = _union(found[value] for value in operands) if pure else _ANYTHING
        reads |= rank if name in _WHO else 0
        found += [reads] * int(graph.result_ptr[node + 1] - graph.result_ptr[node])
    return found


def _union(parts: Iterable[int]) -> int:
    return reduce(or_, parts, 0)


def unchanged(loop: Loop) -> int:
    """The inputs of a body that are the same in each iteration, as bits."""
    body = loop.body
    found = 1 << body.inputs  # the rank
    for n in range(body.inputs):
        if n >= loop.carried or origin(body, int(body.outputs[n])) == n:
            found |= 1 << n
    return found
