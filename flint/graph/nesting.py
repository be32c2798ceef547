"""The blocks of a program: its graph and the loop bodies inside, with path and number of runs.

The idea: a view of a program (a summary, a table, a drawing) needs every node once, with a name
that shows where it is and a factor for the loops around it.  A node's name is its path: ``12`` is
node 12 of the program, ``12/3`` node 3 of the body of loop 12.

    for block in blocks(graph):
        print(block.path(0), block.times * block.graph.flops_by_node().sum())
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph


@dataclass(frozen=True, slots=True)
class ProgramBlock:
    """One block of a program.

    Attributes:
        graph: the program's graph or a body in it.
        owner: path of the loop whose body it is, "" for the program itself.
        level: number of loops around it.
        times: how often it runs in one run of the program.
    """

    graph: WorkloadGraph
    owner: str
    level: int
    times: int

    @property
    def prefix(self) -> str:
        """The part of a node's path before its index."""
        return f"{self.owner}/" if self.owner else ""

    def path(self, node: int) -> str:
        """A node's name within the program."""
        return f"{self.prefix}{node}"


def blocks(graph: WorkloadGraph) -> Iterator[ProgramBlock]:
    """The program's graph, then each body inside it, in the order of their nodes.

    Unrolling opens them in the same order: entry ``i`` is ``graphs[i]`` of ``Unrolled``.

    Args:
        graph: the program.
    """
    yield from _inside(ProgramBlock(graph, "", 0, 1))


def _inside(block: ProgramBlock) -> Iterator[ProgramBlock]:
    yield block
    graph = block.graph
    for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist() if graph.loops else ():
        loop = graph.loop_of(node)
        times = block.times * loop.trip_count
        yield from _inside(ProgramBlock(loop.body, block.path(node), block.level + 1, times))
