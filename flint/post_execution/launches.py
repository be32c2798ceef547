"""Dependencies of kernels that one call launched, such as those of a CUDA graph.

The idea: a graph begins when earlier work is done, and later work of its thread begins when all of
the graph is done.  In between, the trace records only streams; a kernel that began right when one
on another of the graph's streams ended, although its own stream was free before, had waited for
that one.

    by_launch(edges)
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from flint.graph.graph import EdgeKind
from flint.post_execution.edges import JITTER, EdgeSet
from flint.post_execution.units import NO_STREAM

#: A kernel that was held back begins within this time after what it waited for (ns).
_AT_ONCE = 10_000

BY_LAUNCH = (
    "kernels of one launch on several streams (of a CUDA graph): what they wait for is inferred "
    "from the measured times"
)


def by_launch(edges: EdgeSet) -> None:
    """Add the dependencies of kernels that one call launched on several streams."""
    units = edges.units
    works = np.flatnonzero(~units.collective & (units.stream != NO_STREAM))
    if not units.device or not len(works):
        return
    order = works[np.lexsort((works, units.issued[works], units.thread[works]))]
    issued, thread = units.issued[order], units.thread[order]
    first = np.flatnonzero((np.diff(issued, prepend=-1) != 0) | (np.diff(thread, prepend=-2) != 0))
    ends = np.append(first[1:], len(order))
    for low, high in zip(first.tolist(), ends.tolist(), strict=True):
        members = order[low:high].tolist()
        if high - low < 2 or len({int(units.stream[unit]) for unit in members}) < 2:
            continue
        before = int(order[low - 1]) if low and thread[low - 1] == thread[low] else -1
        after = int(order[high]) if high < len(order) and thread[high] == thread[low] else -1
        tails = _within(edges, members, before)
        if after >= 0:
            for unit in tails:
                _follow(edges, unit, after)


def _within(edges: EdgeSet, members: list[int], before: int) -> list[int]:
    """Order the kernels of a launch; returns the last one of each stream.

    Args:
        members: the kernels, in the order in which they began.
        before: what the thread issued before them, -1 for nothing.
    """
    stream = edges.units.stream
    by_end = sorted(members, key=edges.end.__getitem__)
    over = [edges.end[unit] for unit in by_end]
    last: dict[int, int] = {}
    for unit in members:
        own, start = int(stream[unit]), edges.start[unit]
        free = edges.end[last[own]] if own in last else -1
        place = bisect_right(over, start + JITTER) - 1
        held = by_end[place] if place >= 0 else -1
        waited = held >= 0 and stream[held] != own and over[place] > free
        if waited and held < unit and start - over[place] <= _AT_ONCE:
            edges.note(BY_LAUNCH, edges.add(held, unit, EdgeKind.STREAM))
        elif own not in last and before >= 0:
            _follow(edges, before, unit)
        last[own] = unit
    return list(last.values())


def _follow(edges: EdgeSet, before: int, after: int) -> None:
    """Order kernels one after another if the times allow it and no stream already does."""
    apart = edges.units.stream[before] != edges.units.stream[after]
    if apart and before < after and edges.end[before] <= edges.start[after] + JITTER:
        edges.add(before, after, EdgeKind.STREAM)
