"""Source lines for ops that have none, taken from related ops.

The idea: XLA keeps no metadata for merged constants, their broadcasts, a loop's initial values and
counters, and ops that its partitioner adds (``partition_id``, copies of carried values).  Such a
node gets layer, line and phase of its first user; if nothing in its block uses it, those of its
operands, else of the loop that it is in.

    %zero = constant                    # layer.py:12, from here
    %sum = reduce %x, %zero             # layer.py:12
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from flint.graph.graph import NodeKind, WorkloadGraph

UNKNOWN = 0


def with_borrowed_sources(graph: WorkloadGraph, outer: int = UNKNOWN) -> WorkloadGraph:
    """``graph`` with a source for every node that can have one, in bodies too.

    Args:
        graph: nodes come after what they use.
        outer: source of the node whose body this is, as an index into the table of sources.
    """
    known = np.array([bool(item.file) for item in graph.tables.sources], bool)
    return _in_block(graph, known, outer) if known.any() else graph


def _in_block(graph: WorkloadGraph, known: NDArray[np.bool_], outer: int) -> WorkloadGraph:
    source = graph.source
    lacking = np.flatnonzero(~known[source])
    if len(lacking):
        source = _borrowed(graph, known, lacking, outer)
    loops, conditionals = list(graph.loops), list(graph.conditionals)
    for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
        number, own = int(graph.detail[node]), int(source[node])
        loop = loops[number]
        loops[number] = replace(loop, body=_in_block(loop.body, known, own))
    for node in np.flatnonzero(graph.kind == NodeKind.CONDITIONAL).tolist():
        number, own = int(graph.detail[node]), int(source[node])
        item = conditionals[number]
        branches = tuple([_in_block(part, known, own) for part in item.branches])
        conditionals[number] = replace(item, branches=branches)
    return replace(graph, source=source, loops=tuple(loops), conditionals=tuple(conditionals))


def _borrowed(
    graph: WorkloadGraph, known: NDArray[np.bool_], lacking: NDArray[np.int64], outer: int
) -> NDArray[np.int64]:
    source = graph.source.copy()
    lacks = np.zeros(len(graph), bool)
    lacks[lacking] = True
    maker = graph.producer[graph.operand]
    chosen = np.flatnonzero((maker >= 0) & lacks[maker])
    users: dict[int, list[int]] = {}
    for node, user in zip(maker[chosen].tolist(), graph.consumer[chosen].tolist(), strict=True):
        users.setdefault(node, []).append(user)
    # Users come later in the block, so they already have theirs.
    for node in reversed(lacking.tolist()):
        for user in users.get(node, ()):
            if known[source[user]]:
                source[node] = source[user]
                break
    for node in lacking[~known[source[lacking]]].tolist():
        operands = graph.operands_of(node)
        made_from = [int(source[other]) for other in graph.producer[operands] if other >= 0]
        found = [number for number in made_from if known[number]]
        source[node] = found[0] if found else outer if known[outer] else source[node]
    return source
