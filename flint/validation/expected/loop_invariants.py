"""Captured ops whose result does not depend on the iteration, or on nothing at all.

The idea: what an op of a loop's body computes is the same each time if nothing that it reads,
through any other ops, changes from one iteration to the next.  The graph says which of a
body's inputs do.  From how often an op is captured, and how often it runs behind each of its loops
that it may leave, follows which numbers of runs are possible at all.  What reads no input and does
not ask which rank it is on is a constant, and compilers know it.

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

#: Begins of ops that may give something else each time, or do more than give a result.
_IMPURE = ("rng", "custom_call", "infeed", "outfeed", "send", "recv")
#: What an op reads that may change each time: bits of all inputs.
_ANYTHING = -1
#: Ops that read which rank they are on.
_WHO = ("partition_id", "replica_id")


class Invariants:
    """What of a rank's ops does not depend on the iteration."""

    def __init__(self, expected: Expected) -> None:
        self.expected = expected
        self._read: dict[int, list[int]] = {}

    def runs(self, positions: Sequence[int]) -> list[int]:
        """How often a captured op may run: as captured, and before each loop that it may leave.

        Args:
            positions: of one node's runs, all of them.
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
        """Whether what a captured op gives is the same number on all ranks, known beforehand."""
        graph, node = int(self.expected.graph[position]), int(self.expected.node[position])
        return not self._reads(graph)[self._first_result(graph, node)]

    def known(self, graph: int, value: int) -> bool:
        """Whether a value of a graph is a constant."""
        return not self._reads(graph)[value]

    def _first_result(self, graph: int, node: int) -> int:
        of = self.expected.graphs[graph]
        return of.inputs + int(of.result_ptr[node])

    def _reads(self, number: int) -> list[int]:
        """Of every value of a graph, which inputs it depends on, as bits."""
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
