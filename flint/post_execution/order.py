"""Dependencies between units: streams, synchronisation, and collectives.

The idea: a dependency is taken from the strongest evidence in the trace, in this order:

1. Kernels of one stream run one after another; so do ops of one host thread. Host threads that take
   turns (forward, then the engine of the backward pass) keep their order.
2. A wait whose streams the profiler has resolved (``enable_cuda_sync_events``) is an edge from the
   last unit issued to the awaited stream when the event was recorded.
3. A collective waits for what its host thread issued before it: the library makes its stream wait
   for the current one. If the current stream's last kernel had not ended when the collective began,
   it waits for the last one that had.
4. A wait that does not name its streams, and ``wait_tensor``: the next unit of that thread waits
   for the oldest collective that no unit has waited for, among those that had ended when it began.
5. A unit that began right when a collective ended, on a stream that was idle, waits for it. The
   host thread that issued the collective may take as long to go on as the collective held it.
6. An optimizer's step waits for the collectives that no other unit waits for.
7. Kernels of one launch, those of a CUDA graph, follow what was issued before it, and what is
   issued after it follows them (``flint.post_execution.launches``).

No edge contradicts the measured times: a unit that began before another ended did not wait for it.

    edges = edges_of(units, observed, links)
    edges.before[0], edges.after[0]
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import pairwise, product, repeat

import numpy as np

from flint.graph.graph import EdgeKind
from flint.observed.classes import OpClass
from flint.observed.columns import Observed
from flint.post_execution.edges import JITTER, Edges, EdgeSet, Queue, queues_of
from flint.post_execution.launches import by_launch
from flint.post_execution.links import Links
from flint.post_execution.units import NO_STREAM, Units
from flint.post_execution.waits import (
    by_optimizer,
    by_time,
    host_waits,
    left_over,
    resolved_waits,
    unresolved_waits,
)

#: The most kernels of one stream that may run in parallel.
_BESIDE = 64


def edges_of(units: Units, trace: Observed, links: Links | None, linked: Set[int]) -> Edges:
    """The order of a rank's units.

    Args:
        units: units in order of issue.
        trace: the rows that they come from.
        links: links of the trace; None if it has no times.
        linked: collectives (units) whose consumers are known from data.
    """
    edges = EdgeSet(units, linked)
    streams = queues_of(units, units.stream)
    _within_streams(edges, streams)
    if not units.device:
        _turns(edges)
    talks = np.flatnonzero(edges.talks).tolist()
    # A trace that resolves waits has all of them.
    resolved = {wait.stream for wait in links.stream_waits if wait.stream >= 0} if links else set()
    _producers(edges, streams, resolved)
    by_launch(edges)
    if links is not None:
        resolved_waits(edges, streams, links)
        host_waits(edges, streams, links)
        unresolved_waits(edges, talks, trace, links)
    sends = np.array([fact.kind == OpClass.SEND for fact in units.facts], bool)[units.fact]
    results = [unit for unit in talks if not sends[unit]]
    if units.timed:
        work = [q for q in streams.values() if not edges.talks[q.units].all()]
        # A host that waits for a message that it has sent goes on when it is gone.
        by_time(edges, work, results if units.device else talks)
        by_optimizer(edges, work, links, results)
    left_over(edges, results)
    return edges.finish()


def _within_streams(edges: EdgeSet, streams: dict[int, Queue]) -> None:
    """Rule 1."""
    communicates = edges.units.collective
    for queue in streams.values():
        members = queue.units.tolist()
        if not communicates[queue.units].any():
            apart = not edges.units.timed or _one_by_one(queue)
            pairs = pairwise(members) if apart else _in_turn(edges, queue)
            edges.kind.update(zip(pairs, repeat(int(EdgeKind.STREAM))))
            continue
        for earlier, later in pairwise(_batches(edges, members)):
            for before, after in product(earlier, later):
                edges.kind[before, after] = int(EdgeKind.STREAM)


def _one_by_one(queue: Queue) -> bool:
    """Whether each unit began after all before it had ended."""
    return bool((queue.over[:-1] <= queue.start[1:] + JITTER).all())


def _in_turn(edges: EdgeSet, queue: Queue) -> Iterator[tuple[int, int]]:
    """The predecessors of each unit on a stream: the previous unit, unless a device ran them in
    parallel.

    In that case it follows earlier units that had ended, back to one that began after all before
    it.
    """
    members, starts = queue.units.tolist(), queue.start.tolist()
    over = queue.over.tolist()
    for place in range(1, len(members)):
        begun = starts[place] + JITTER
        for back in range(place - 1, max(-1, place - 1 - _BESIDE), -1):
            if edges.end[members[back]] <= begun:
                yield members[back], members[place]
                if back == 0 or over[back - 1] <= starts[back] + JITTER:
                    break


def _batches(edges: EdgeSet, members: list[int]) -> list[list[int]]:
    """A stream's units, grouped by kernel: one kernel may run the messages of a batch."""
    batches: list[list[int]] = []
    for unit in members:
        batch = edges.together.get(unit, [unit])
        if not batches or batches[-1] is not batch:
            batches.append(batch)
    return batches


def _turns(edges: EdgeSet) -> None:
    """Host threads that take turns."""
    units = edges.units
    works = np.flatnonzero(~units.collective)
    thread = units.thread[works]
    for place in np.flatnonzero(np.diff(thread)).tolist():
        before, after = int(works[place]), int(works[place + 1])
        if not units.timed or edges.end[before] <= edges.start[after]:
            edges.add(before, after, EdgeKind.ORDER)


def _producers(edges: EdgeSet, streams: dict[int, Queue], resolved: set[int]) -> None:
    """What each collective waits for: rule 3, unless a resolved wait shows it (rule 2)."""
    units = edges.units
    if not edges.talks.any():
        return
    last: dict[int, int] = {}
    latest = -1
    place = np.zeros(len(units), np.int64)
    for queue in streams.values():
        place[queue.units] = np.arange(len(queue.units))
    communicates = edges.talks.tolist()
    thread, stream = units.thread.tolist(), units.stream.tolist()
    for unit in range(len(units)):
        if not communicates[unit]:
            last[thread[unit]] = latest = unit
            continue
        before = last.get(thread[unit], latest)
        together = before >= 0 and stream[before] == stream[unit] != NO_STREAM
        if stream[unit] in resolved or before < 0 or together:
            continue
        if units.timed and edges.end[before] > edges.start[unit]:
            if stream[before] == NO_STREAM:
                continue
            queue = streams[stream[before]]
            over = int(np.searchsorted(queue.over, edges.start[unit], side="right")) - 1
            at = min(over, int(place[before]))
            if at < 0:
                continue
            before = int(queue.units[at])
        edges.add(before, unit, EdgeKind.STREAM)
