"""Which nodes of a compiled program stand for which of its executed instructions.

The idea: an instruction may be several nodes, of which the heaviest takes its time; in a loop, the
node's instances take the times of its executions, one after another.

    nodes = instruction_nodes(graph, owner, executed)
    nodes.of["fusion.3"]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from flint.graph.graph import Ints, NodeKind, WorkloadGraph
from flint.graph.unrolling import Unrolled
from flint.graph.work import Role
from flint.passes.opened import opened


@dataclass(frozen=True, eq=False, slots=True)
class InstructionNodes:
    """A program's graph with its loops opened.

    Attributes:
        graph: the graph.
        of: instruction -> the nodes that take its time, ascending.
        all_of: the same with all nodes of the chosen node's own instruction: a computation that is
            called at several places.
    """

    graph: WorkloadGraph
    of: dict[str, Ints]
    all_of: dict[str, Ints]

    def for_executions(self, name: str, count: int) -> Ints:
        """The nodes of an instruction that ran this often; fewer or more if none fit."""
        several = self.all_of[name]
        return several if len(several) == count else self.of[name]


def instruction_nodes(
    graph: WorkloadGraph, owner: Sequence[str], executed: Collection[str]
) -> InstructionNodes:
    """The nodes of a program that take the time of each executed instruction.

    Args:
        graph: the program.
        owner: for each of its sources, the executed instruction that it is part of ("": none).
        executed: the executed instructions.

    Raises:
        FlintError: the loops have too many iterations.
    """
    flat, unrolled = opened(graph)
    chosen = _chosen(unrolled, owner, executed)
    source = unrolled.column("source")
    by_template: dict[int, list[int]] = defaultdict(list)
    by_source: dict[int, list[int]] = defaultdict(list)
    usable = (flat.role != Role.ALIAS) & (flat.kind <= NodeKind.COMMUNICATION)
    for node in np.flatnonzero(usable).tolist():
        by_template[int(unrolled.template[node])].append(node)
        by_source[int(flat.source[node])].append(node)
    of, all_of = {}, {}
    for name, templates in chosen.items():
        of[name] = np.sort([n for one in templates for n in by_template[one]]).astype(np.int64)
        sources = {int(source[one]) for one in templates}
        all_of[name] = np.sort([n for one in sources for n in by_source[one]]).astype(np.int64)
    return InstructionNodes(flat, of, all_of)


def _chosen(
    unrolled: Unrolled, owner: Sequence[str], executed: Collection[str]
) -> dict[str, list[int]]:
    """The heaviest node of each instruction in each block, by template number."""
    found: dict[str, list[int]] = defaultdict(list)
    for graph, first in zip(unrolled.graphs, unrolled.start.tolist(), strict=False):
        best: dict[str, tuple[tuple[bool, int, int], int]] = {}
        moved = graph.bytes_read + graph.bytes_written
        flops = graph.flops_by_node()
        for node in range(len(graph)):
            name = owner[int(graph.source[node])]
            kind, role = int(graph.kind[node]), int(graph.role[node])
            if name not in executed or kind > NodeKind.COMMUNICATION or role == Role.ALIAS:
                continue
            weight = kind == NodeKind.COMMUNICATION, int(flops[node]), int(moved[node])
            if name not in best or best[name][0] < weight:
                best[name] = weight, node
        for name, (_, node) in best.items():
            found[name].append(first + node)
    return found
