"""The optimizer's part of a step: ops that need gradients but are not part of differentiation.

The idea: JAX's name stack marks everything inside ``grad``; the optimizer's ops have a path without
such a mark, like those before the loss.  Dependences distinguish them: ops that depend on the
backward pass belong to the optimizer (clipping, averaging over microbatches and the update). Ops
that a barrier only holds back until there are gradients do not depend on them.  Ops without an
origin, which a compiler has inserted, stay unknown.

    graph = mark_optimizer(graph)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flint.graph.graph import Ints, NodeKind, Phase, Source, Tables, WorkloadGraph, with_tables
from flint.graph.joins import through_joins
from flint.graph.work import Role
from flint.passes.order import predecessors


def mark_optimizer(graph: WorkloadGraph) -> WorkloadGraph:
    """``graph`` with phase OPTIMIZER on nodes of unknown phase that need gradients, in bodies too.

    Args:
        graph: a program; nodes in any topological order.
    """
    sources = graph.tables.sources
    if not any(source.phase is Phase.BACKWARD for source in sources):
        return graph
    marks = _Marks(graph.tables)
    marked, _ = marks.graph(graph, False)
    return with_tables(marked, replace(graph.tables, sources=tuple(marks.sources)))


class _Marks:
    """The growing table of sources, with cached properties of each entry."""

    def __init__(self, tables: Tables) -> None:
        self.sources = list(tables.sources)
        self.backward = [item.phase is Phase.BACKWARD for item in tables.sources]
        self.open = [item.phase is Phase.UNKNOWN and bool(item.file) for item in tables.sources]
        self._twin: dict[int, int] = {}

    def twin(self, source: int) -> int:
        """The same source with the optimizer's phase."""
        if source not in self._twin:
            item = self.sources[source]
            self._twin[source] = len(self.sources)
            self.sources.append(Source(item.layer, item.file, item.line, Phase.OPTIMIZER))
        return self._twin[source]

    def graph(self, graph: WorkloadGraph, reached: bool) -> tuple[WorkloadGraph, bool]:
        """A block marked, and whether a backward pass is in it.

        Args:
            graph: the block.
            reached: whether its inputs depend on gradients.
        """
        source: list[int] = graph.source.tolist()
        kind: list[int] = graph.kind.tolist()
        ends = (graph.kind == NodeKind.COMPUTE) & (graph.role == Role.CONTROL)
        loops, conditionals = list(graph.loops), list(graph.conditionals)
        differentiates = [self.backward[number] for number in source]
        # One entry more: producer -1, an input of the block, is read from the end.
        needs = [False] * len(graph) + [reached]
        for node, makers in enumerate(predecessors(through_joins(graph))):
            waits = any(needs[maker] for maker in makers)
            number = int(graph.detail[node])
            if kind[node] == NodeKind.LOOP:
                body, differentiates[node] = self.graph(loops[number].body, waits)
                loops[number] = replace(loops[number], body=body)
            elif kind[node] == NodeKind.CONDITIONAL:
                marked = [self.graph(branch, waits) for branch in conditionals[number].branches]
                differentiates[node] = any(found for _, found in marked)
                branches = tuple(branch for branch, _ in marked)
                conditionals[number] = replace(conditionals[number], branches=branches)
            if waits and not differentiates[node] and self.open[source[node]]:
                source[node] = self.twin(source[node])
            # Nodes after the end of a program wait for all of it; that is not a use of a gradient.
            needs[node] = (waits and not ends[node]) or differentiates[node]
        column: Ints = np.array(source, dtype=np.int64)
        changed = replace(
            graph, source=column, loops=tuple(loops), conditionals=tuple(conditionals)
        )
        return changed, any(differentiates)
