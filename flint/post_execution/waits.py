"""Waits: of streams for streams, of the host for streams, and of units for collectives.

The rules are listed in ``flint.post_execution.order``; this module implements them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from flint.graph.distinct import distinct
from flint.graph.graph import EdgeKind
from flint.mesh.ragged import Ints
from flint.observed.columns import Observed
from flint.post_execution.edges import JITTER, EdgeSet, Queue, queues_of
from flint.post_execution.links import Links, StreamWait
from flint.post_execution.units import NO_STREAM

#: A unit that was held back begins within this time after the event that it waited for (ns): on a
#: device the hardware releases it, on a host a thread has to wake up.
_AT_ONCE, _WOKEN = 10_000, 200_000
#: The most collectives without a waiting unit that are tried for a wait.
_LOOKED_BACK = 256
#: Ops that wait for a collective.
_WAIT_OPS = ("_c10d_functional::wait_tensor", "c10d::wait")
_LIBRARY = "c10d::"
#: Annotation of an optimizer's step.
OPTIMIZER = "Optimizer.step"

UNRESOLVED = (
    "waits whose target is not recorded: matched to the oldest finished collective (profile "
    "with _ExperimentalConfig(enable_cuda_sync_events=True) to record it)"
)
UNAWAITED = "collectives whose result nothing waits for within the step"
BY_TIME = "collectives that a kernel waits for, inferred from the measured times alone"
BY_OPTIMIZER = "collectives that only the optimizer's step waits for, as far as the trace shows"


def resolved_waits(edges: EdgeSet, streams: dict[int, Queue], links: Links) -> None:
    """Rule 2; units that wait for a stream afterwards also wait for what the stream waited for."""
    passed_on: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for wait in links.stream_waits:
        if wait.awaited < 0 or wait.stream == wait.awaited:
            continue
        recorded = wait.recorded if wait.recorded >= 0 else wait.when
        awaited, waiting = streams.get(wait.awaited), streams.get(wait.stream)
        last = awaited.issued_before(recorded) if awaited is not None else -1
        since = int(edges.units.issued[last]) if last >= 0 else -1
        sources = [unit for when, unit in passed_on[wait.awaited] if since <= when < recorded]
        sources += [last] if last >= 0 else []
        after = waiting.issued_from(wait.when) if waiting is not None else -1
        for before in sources:
            passed_on[wait.stream].append((wait.when, before))
            if after >= 0:
                edges.add(before, after, EdgeKind.STREAM)


def host_waits(edges: EdgeSet, streams: dict[int, Queue], links: Links) -> None:
    """The host continued only when a stream was done: everything that it issued afterwards waits,
    too.
    """
    for wait in links.host_waits:
        for stream, queue in streams.items():
            before = queue.issued_before(wait.start)
            if wait.stream not in (-1, stream) or before < 0:
                continue
            for other, later in streams.items():
                after = later.issued_from(wait.end)
                if other != stream and after >= 0 and edges.end[before] <= edges.start[after]:
                    edges.add(before, after, EdgeKind.ORDER)


def unresolved_waits(edges: EdgeSet, talks: list[int], trace: Observed, links: Links) -> None:
    """Rule 4."""
    units = edges.units
    works = queues_of(units, units.thread, ~edges.talks)
    issues = queues_of(units, units.thread)
    everything = queues_of(units, np.zeros(len(units), np.int64), ~edges.talks)
    left = list(talks)
    for wait in sorted([*_by_users(trace, links), *_wait_ops(trace, links, edges)]):
        queue = (works if wait.thread >= 0 else everything).get(max(wait.thread, 0))
        after = queue.issued_from(wait.when) if queue is not None else -1
        if after < 0:
            continue
        left = [unit for unit in left[:_LOOKED_BACK] if unit not in edges.awaited] + left[
            _LOOKED_BACK:
        ]
        unit = _oldest(edges, left, wait.when, after)
        if unit < 0:
            continue
        edges.add(unit, after, EdgeKind.STREAM)
        edges.notes[UNRESOLVED] += 1
        # A collective that the thread issues before that work also waits.
        first = issues[wait.thread].issued_from(wait.when) if wait.thread in issues else after
        if first < after and unit < first and edges.end[unit] <= edges.start[first]:
            edges.add(unit, first, EdgeKind.STREAM)


def _oldest(edges: EdgeSet, left: Iterable[int], when: int, after: int) -> int:
    """The first collective issued before a moment that had ended when a unit began, -1 for none."""
    units = edges.units
    for number, unit in enumerate(left):
        if unit >= after or units.issued[unit] >= when or number >= _LOOKED_BACK:
            break
        orders_itself = units.stream[unit] == units.stream[after] != NO_STREAM
        if not orders_itself and edges.end[unit] <= edges.start[after] + JITTER:
            return unit
    return -1


def _by_users(trace: Observed, links: Links) -> list[StreamWait]:
    """Waits that do not name their streams, without those that a library makes for itself.

    Calls inside a collective order the library's streams: that is rule 3.
    """
    communicates = np.array(
        [fact.kind.collective or fact.name.startswith(_LIBRARY) for fact in trace.facts], bool
    )
    inside: dict[int, tuple[Ints, Ints]] = {}
    rows = np.flatnonzero(communicates[trace.op])
    for thread in distinct(links.thread[rows]).tolist():
        of_thread = rows[links.thread[rows] == thread]
        order = np.argsort(links.issued[of_thread], kind="stable")
        over = np.maximum.accumulate(links.over[of_thread][order])
        inside[thread] = links.issued[of_thread][order], over
    nothing = np.zeros(0, np.int64)
    found = []
    for wait in links.stream_waits:
        if wait.awaited >= 0:
            continue
        begins, ends = inside.get(wait.thread, (nothing, nothing))
        at = int(np.searchsorted(begins, wait.when, side="right")) - 1
        if at < 0 or ends[at] < wait.when:
            found.append(wait)
    return found


def _wait_ops(trace: Observed, links: Links, edges: EdgeSet) -> list[StreamWait]:
    """Ops that wait for a collective, as waits of their thread."""
    rows = edges.units.row[edges.units.row >= 0]
    step = trace.step[rows[0]] if len(rows) else 0
    named = np.array([fact.name in _WAIT_OPS for fact in trace.facts], bool)
    rows = np.flatnonzero(named[trace.op] & (trace.step == step))
    return [
        StreamWait(int(links.issued[row]), -1, -1, -1, int(links.thread[row]))
        for row in rows.tolist()
    ]


def by_time(edges: EdgeSet, work: list[Queue], results: list[int]) -> None:
    """Rule 5."""
    units = edges.units
    patience = _AT_ONCE if units.device else _WOKEN
    over = np.array([edges.end[unit] for unit in results], np.int64)
    next_in = [np.searchsorted(queue.start, over - 1, side="left").tolist() for queue in work]
    for unit, end, *places in zip(results, over.tolist(), *next_in, strict=True):
        if unit in edges.awaited:
            continue
        for queue, at in zip(work, places, strict=True):
            if at >= len(queue.units):
                continue
            after = int(queue.units[at])
            other = units.stream[unit] != units.stream[after]
            last = int(queue.over[at - 1]) if at else 0
            idle = last < end - JITTER
            ready = units.issued[after] < end or not units.device
            waited = end - int(units.issued[unit])
            # A thread that does nothing between a call and its end is held by it; on a machine with
            # fewer processors than ranks it takes long to go on.
            held = not units.device and units.thread[unit] == units.thread[after]
            held = held and last <= units.issued[unit]
            soon = edges.start[after] - end <= (max(patience, waited) if held else patience)
            if unit < after and other and idle and ready and soon:
                edges.note(BY_TIME, edges.add(unit, after, EdgeKind.STREAM))


def by_optimizer(
    edges: EdgeSet, work: list[Queue], links: Links | None, results: list[int]
) -> None:
    """Rule 6."""
    units = edges.units
    spans = [s for s in links.spans if s.name.startswith(OPTIMIZER)] if links is not None else []
    begins = np.array([span.start for span in spans], np.int64)
    unawaited = _unawaited(edges, results) if spans else []
    next_in = np.searchsorted(begins, units.issued[unawaited], side="left")
    for unit, at in zip(unawaited, next_in.tolist(), strict=True):
        if at == len(spans):
            continue
        for queue in work:
            after = queue.issued_from(spans[at].start)
            inside = after >= 0 and units.issued[after] < spans[at].end
            if inside and units.stream[unit] != units.stream[after]:
                edges.note(BY_OPTIMIZER, edges.add(unit, after, EdgeKind.STREAM))


def left_over(edges: EdgeSet, results: list[int]) -> None:
    """Count the collectives that no unit waits for."""
    left = _unawaited(edges, results)
    if left:
        edges.notes[UNAWAITED] += len(left)


def _unawaited(edges: EdgeSet, results: list[int]) -> list[int]:
    """Collectives for which, and for later ones of their stream, no unit waits."""
    if not results:
        return []
    units = edges.units
    last: dict[int, int] = {}  # stream -> its last unit that is awaited, or does work itself
    for unit in edges.awaited:
        stream = int(units.stream[unit])
        last[stream] = max(last.get(stream, -1), unit)
    works = np.flatnonzero(~edges.talks)
    for stream, unit in zip(units.stream[works].tolist(), works.tolist(), strict=True):
        last[stream] = max(last.get(stream, -1), unit)
    last[NO_STREAM] = -1
    return [
        unit
        for unit in results
        if unit not in edges.awaited and unit > last.get(int(units.stream[unit]), -1)
    ]
