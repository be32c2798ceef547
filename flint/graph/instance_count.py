"""The number of instances that unrolling would make, and the refusal of too many in advance."""

from __future__ import annotations

from typing import Final

import numpy as np

from flint.errors import FlintError
from flint.graph.blocks import is_plain, shown
from flint.graph.graph import Ints, Loop, NodeKind, WorkloadGraph

#: More instances of a program are refused: writing traces takes 1.5 KB for each.
MAX_INSTANCES: Final = 1 << 22


def instances_of(graph: WorkloadGraph) -> int:
    """How many instances ``unroll`` would make, without a limit."""
    count = int(np.count_nonzero(is_plain(graph)))
    return count + sum(loop.trip_count * instances_of(loop.body) for loop in graph.loops)


def first_instances(graph: WorkloadGraph) -> Ints:
    """Where the instances of each node begin, and where the last one's end, shape [nodes + 1]."""
    sizes = np.ones(len(graph), np.int64)
    for node in np.flatnonzero(graph.kind == NodeKind.LOOP).tolist():
        loop = graph.loop_of(node)
        sizes[node] = loop.trip_count * instances_of(loop.body)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def check_size(graph: WorkloadGraph) -> None:
    """Refuse a program of too many instances before it is unrolled.

    Raises:
        FlintError: too many; names their number and the loop.
    """
    instances = instances_of(graph)
    if instances <= MAX_INSTANCES:
        return
    text = f"with loops unrolled, the program has {shown(instances)} nodes"
    loop, where = _largest_loop(graph)
    if loop is not None:
        inside = instances_of(loop.body)
        text += f" (a loop{where} runs {shown(loop.trip_count)} times over {shown(inside)})"
    raise FlintError(
        f"{text}; the limit is {MAX_INSTANCES:,}: use a coarser granularity or a smaller trip "
        "count; flint inspect and diff count without unrolling"
    )


def _largest_loop(graph: WorkloadGraph) -> tuple[Loop | None, str]:
    """The outermost loop with the most instances, and its source line."""
    nodes = np.flatnonzero(graph.kind == NodeKind.LOOP).tolist()
    loops = [(graph.loop_of(node), node) for node in nodes]
    if not loops:
        return None, ""
    loop, node = max(loops, key=lambda item: item[0].trip_count * instances_of(item[0].body))
    source = graph.tables.sources[int(graph.source[node])]
    return loop, f" at {source.file}:{source.line}" if source.file else ""
