"""The blocks of a program: its graph and the bodies inside, with place and number of runs.

The idea: whoever looks at a program (a summary, a table, a drawing) wants every node once, with a
name that says where it is and a factor for the loops around it.  A node's name is its path: ``12``
is node 12 of the program, ``12/3`` node 3 of the body of loop 12, ``12.1/3`` node 3 of branch 1 of
conditional 12.

    for block in blocks(graph):
        print(block.path(0), block.times * block.graph.flops_by_node().sum())
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from flint.graph.graph import NodeKind, WorkloadGraph


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a program.

    Attributes:
        graph: the program's graph or a body in it.
        owner: path of the loop or of the conditional's branch that it is the body of, "" for the
            program itself.
        level: loops around it.
        times: how often it runs in one run of the program; 0 for a branch that is not taken.
        taken: whether it stands in no branch that is not taken.
    """

    graph: WorkloadGraph
    owner: str
    level: int
    times: int
    taken: bool = True

    @property
    def prefix(self) -> str:
        """What stands before a node's index in its path."""
        return f"{self.owner}/" if self.owner else ""

    def path(self, node: int) -> str:
        """A node's name within the program."""
        return f"{self.prefix}{node}"


def blocks(graph: WorkloadGraph) -> Iterator[Block]:
    """The program's graph, then each body inside it, in the order of their nodes.

    A branch of a conditional that is not the one taken has ``times`` 0.

    Args:
        graph: the program.
    """
    yield from _inside(Block(graph, "", 0, 1))


def opened_blocks(graph: WorkloadGraph) -> list[Block]:
    """The blocks that unrolling opens: entry ``i`` is ``graphs[i]`` of ``unrolling``."""
    return [block for block in blocks(graph) if block.taken]


def _inside(block: Block) -> Iterator[Block]:
    yield block
    graph = block.graph
    if not graph.loops and not graph.conditionals:
        return
    for node in np.flatnonzero(graph.kind >= NodeKind.LOOP).tolist():
        detail = int(graph.detail[node])
        if graph.kind[node] == NodeKind.LOOP:
            loop = graph.loops[detail]
            times = block.times * loop.trip_count
            yield from _inside(
                Block(loop.body, block.path(node), block.level + 1, times, block.taken)
            )
            continue
        conditional = graph.conditionals[detail]
        for number, branch in enumerate(conditional.branches):
            taken = block.taken and number == conditional.taken
            times = block.times if taken else 0
            owner = f"{block.path(node)}.{number}"
            yield from _inside(Block(branch, owner, block.level, times, taken))
