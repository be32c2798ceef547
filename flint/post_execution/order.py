"""Who waited for whom: streams, synchronisation, and collectives with what they wait for.

The idea: a dependency is taken from the strongest thing that the trace says, in this order:

1. Kernels of one stream run one after another; ops of one host thread, too.  Host threads that take
   turns (forward, then the engine of the backward pass) are ordered as they did.
2. A wait whose streams the profiler has resolved (``enable_cuda_sync_events``) is an edge from the
   last unit that the awaited stream had been given when the event was recorded.
3. A collective waits for what its host thread issued before it: the library makes its stream wait
   for the current one.  Where the current stream's last kernel was not over when the collective
   began, the last one that was.
4. A wait that does not name its streams, and ``wait_tensor``: the next unit of that thread waits
   for the oldest collective that nobody has waited for, of those that were over when it began.
5. A unit that began right when a collective ended, on a stream that was idle for it.
6. An optimizer's step waits for the collectives that nobody else waits for.

No edge contradicts the measured times: what began before the other was over did not wait for it.

    edges = edges_of(units, observed, links)
    edges.before[0], edges.after[0]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from flint.graph import EdgeKind
from flint.post_execution.links import HostWait, Links, StreamWait
from flint.post_execution.units import NO_STREAM, Units
from flint.validation.classes import OpClass
from flint.validation.observed import Observed

Ints = NDArray[np.int64]

#: Two clocks of a profiler agree to so many nanoseconds.
JITTER = 2_000
#: A unit that was held back begins so soon after the event that it waited for (ns): on a device
#: the hardware lets it go, on a host a thread has to wake up.
_AT_ONCE, _WOKEN = 10_000, 200_000
_WAIT_OPS = ("_c10d_functional::wait_tensor", "c10d::wait")
_LIBRARY = "c10d::"
#: Annotation of an optimizer's step.
OPTIMIZER = "Optimizer.step"

UNRESOLVED = (
    "waits that do not say for what: taken as for the oldest collective that was over (profile "
    "with _ExperimentalConfig(enable_cuda_sync_events=True) to know)"
)
CONTRADICTED = "dependencies that the measured times contradict, left out"
UNAWAITED = "collectives whose result nobody waits for within the step"
BY_TIME = "collectives that a kernel was held back for, by the measured times alone"
BY_OPTIMIZER = "collectives that only the optimizer's step waits for, as far as the trace says"


@dataclass(frozen=True, eq=False)
class Edges:
    """Dependencies between units without data.

    Attributes:
        before, after: units; ``before`` is always the smaller number.
        kind: ``EdgeKind``.
        notes: text -> count.
    """

    before: Ints
    after: Ints
    kind: NDArray[np.int8]
    notes: dict[str, int]


class _Found:
    """Edges as they are found, each once."""

    def __init__(self, units: Units) -> None:
        self.units = units
        self.start, self.end = units.start.tolist(), units.end.tolist()
        self.kind: dict[tuple[int, int], int] = {}
        self.notes: dict[str, int] = defaultdict(int)

    def add(self, before: int, after: int, kind: EdgeKind) -> bool:
        """Add an edge unless the times contradict it; says whether it is there now."""
        if before >= after or (self.units.timed and self.end[before] > self.start[after] + JITTER):
            self.notes[CONTRADICTED] += 1
            return False
        self.kind.setdefault((before, after), int(kind))
        return True


def edges_of(units: Units, trace: Observed, links: Links | None, linked: Set[int]) -> Edges:
    """The order of a rank's units.

    Args:
        units: in order of issue.
        trace: the rows that they come from.
        links: beside the trace; None where it has no times.
        linked: collectives whose consumers are known by data, units.
    """
    found = _Found(units)
    streams = _streams(units)
    for members in streams.values():
        for earlier, later in pairwise(_batches(units, members)):
            for before, after in product(earlier, later):
                found.kind[before, after] = int(EdgeKind.STREAM)
    if not units.device:
        _turns(found)
    talks = np.flatnonzero(units.collective).tolist()
    # A trace that resolves waits tells all of them.
    resolved = {wait.stream for wait in links.stream_waits if wait.stream >= 0} if links else set()
    _producers(found, streams, talks, resolved)
    awaited = set(linked)
    if links is not None:
        unresolved = _by_users(trace, links)
        for wait in links.stream_waits:
            if wait.awaited >= 0:
                _resolved(found, streams, wait, awaited)
        for host in links.host_waits:
            _host(found, streams, host, awaited)
        _waits(found, [*unresolved, *_wait_rows(trace, links, units)], talks, awaited)
    sends = np.array([fact.kind == OpClass.SEND for fact in units.facts], bool)[units.fact]
    results = [unit for unit in talks if not sends[unit]]
    if units.timed:
        _held_back(found, streams, results, awaited)
        _optimizer(found, streams, links, results, awaited)
    left = [unit for unit in results if not _is_awaited(unit, awaited, units, streams)]
    if left:
        found.notes[UNAWAITED] += len(left)
    return _columns(found)


def _columns(found: _Found) -> Edges:
    pairs = np.array(list(found.kind), np.int64).reshape(-1, 2)
    kind = np.array(list(found.kind.values()), np.int8)
    order = np.lexsort((pairs[:, 0], pairs[:, 1]))
    return Edges(pairs[order, 0], pairs[order, 1], kind[order], dict(found.notes))


def _streams(units: Units) -> dict[int, list[int]]:
    """Stream -> its units, in order."""
    found: dict[int, list[int]] = defaultdict(list)
    for unit, stream in enumerate(units.stream.tolist()):
        if stream != NO_STREAM:
            found[stream].append(unit)
    return found


def _batches(units: Units, members: list[int]) -> list[list[int]]:
    """A stream's units, those together that one kernel ran: messages of one batch."""
    batches: list[list[int]] = []
    last = -1
    start, communicates = units.start.tolist(), units.collective.tolist()
    for unit in members:
        together = communicates[unit] and start[unit] == last
        if together:
            batches[-1].append(unit)
        else:
            batches.append([unit])
        last = start[unit] if communicates[unit] else -1
    return batches


def _turns(found: _Found) -> None:
    """Host threads that take turns."""
    units = found.units
    works = np.flatnonzero(~units.collective)
    thread = units.thread[works]
    for place in np.flatnonzero(np.diff(thread)).tolist():
        before, after = int(works[place]), int(works[place + 1])
        if not units.timed or found.end[before] <= found.start[after]:
            found.add(before, after, EdgeKind.ORDER)


def _producers(
    found: _Found, streams: dict[int, list[int]], talks: list[int], resolved: set[int]
) -> None:
    """What each collective waits for: rule 3, where no resolved wait says it (rule 2)."""
    units = found.units
    last: dict[int, int] = {}
    latest = -1
    place = {unit: i for members in streams.values() for i, unit in enumerate(members)}
    ends = {
        stream: np.maximum.accumulate(np.array([found.end[unit] for unit in members]))
        for stream, members in streams.items()
    }
    communicates = units.collective.tolist()
    thread, stream = units.thread.tolist(), units.stream.tolist()
    for unit in range(len(units)):
        if not communicates[unit]:
            last[thread[unit]] = latest = unit
            continue
        if stream[unit] in resolved:
            continue
        before = last.get(thread[unit], latest)
        if before < 0 or stream[before] == stream[unit]:
            continue
        if units.timed and found.end[before] > found.start[unit]:
            at = stream[before]
            over = int(np.searchsorted(ends[at], found.start[unit], side="right")) - 1
            if min(over, place[before]) < 0:
                continue
            before = streams[at][min(over, place[before])]
        found.add(before, unit, EdgeKind.STREAM)


def _issued_before(units: Units, members: list[int], when: int) -> int:
    """The last of a stream's units that was issued before a moment, -1 for none."""
    place = int(np.searchsorted(units.issued[members], when, side="left")) - 1
    return members[place] if place >= 0 else -1


def _issued_from(units: Units, members: list[int], when: int) -> int:
    """The first of a stream's units that was issued at a moment or later, -1 for none."""
    place = int(np.searchsorted(units.issued[members], when, side="left"))
    return members[place] if place < len(members) else -1


def _resolved(
    found: _Found, streams: dict[int, list[int]], wait: StreamWait, awaited: set[int]
) -> None:
    units = found.units
    recorded = wait.recorded if wait.recorded >= 0 else wait.when
    before = _issued_before(units, streams.get(wait.awaited, []), recorded)
    after = _issued_from(units, streams.get(wait.stream, []), wait.when)
    if (
        before >= 0
        and after >= 0
        and wait.stream != wait.awaited
        and found.add(before, after, EdgeKind.STREAM)
    ):
        _mark(before, after, units, awaited)


def _host(found: _Found, streams: dict[int, list[int]], wait: HostWait, awaited: set[int]) -> None:
    """The host went on only when a stream was done: so does all that it issued afterwards."""
    units = found.units
    for stream, members in streams.items():
        if wait.stream not in (-1, stream):
            continue
        before = _issued_before(units, members, wait.start)
        if before < 0:
            continue
        for other, later in streams.items():
            after = _issued_from(units, later, wait.end)
            if (
                other != stream
                and after >= 0
                and found.end[before] <= found.start[after]
                and found.add(before, after, EdgeKind.ORDER)
            ):
                _mark(before, after, units, awaited)


def _by_users(trace: Observed, links: Links) -> list[StreamWait]:
    """Waits that do not name their streams, without those that a library makes for itself.

    What is called inside of a collective orders the library's streams: that is rule 3.
    """
    communicates = np.array(
        [fact.kind.collective or fact.name.startswith(_LIBRARY) for fact in trace.facts], bool
    )
    inside: dict[int, tuple[Ints, Ints]] = {}
    rows = np.flatnonzero(communicates[trace.op])
    for thread in np.unique(links.thread[rows]).tolist():
        mine = rows[links.thread[rows] == thread]
        order = np.argsort(links.issued[mine], kind="stable")
        over = np.maximum.accumulate(links.over[mine][order])
        inside[thread] = links.issued[mine][order], over
    found = []
    for wait in links.stream_waits:
        if wait.awaited >= 0:
            continue
        begins, ends = inside.get(wait.thread, (np.zeros(0, np.int64), np.zeros(0, np.int64)))
        at = int(np.searchsorted(begins, wait.when, side="right")) - 1
        if at < 0 or ends[at] < wait.when:
            found.append(wait)
    return found


def _mark(before: int, after: int, units: Units, awaited: set[int]) -> None:
    if units.collective[before] and not units.collective[after]:
        awaited.add(before)


def _wait_rows(trace: Observed, links: Links, units: Units) -> list[StreamWait]:
    """Ops that wait for a collective, as waits of their thread."""
    step = trace.step[units.row[units.row >= 0][0]] if (units.row >= 0).any() else 0
    named = np.array([fact.name in _WAIT_OPS for fact in trace.facts], bool)
    rows = np.flatnonzero(named[trace.op] & (trace.step == step))
    return [
        StreamWait(int(links.issued[row]), -1, -1, -1, int(links.thread[row]))
        for row in rows.tolist()
    ]


def _waits(found: _Found, waits: list[StreamWait], talks: list[int], awaited: set[int]) -> None:
    """Waits that do not name their streams: rule 4."""
    units = found.units
    by_thread: dict[int, list[int]] = defaultdict(list)
    for unit, thread in enumerate(units.thread.tolist()):
        by_thread[thread].append(unit)
    everybody = list(range(len(units)))
    for wait in sorted(waits):
        members = everybody if wait.thread < 0 else by_thread.get(wait.thread, [])
        after = _issued_from(units, members, wait.when)
        if after < 0 or units.collective[after]:
            continue  # the library's own wait before a collective: rule 3
        for unit in talks:
            if unit >= after or units.issued[unit] >= wait.when:
                break
            waits_itself = units.stream[unit] == units.stream[after] != NO_STREAM
            if unit in awaited or waits_itself or found.end[unit] > found.start[after] + JITTER:
                continue
            found.add(unit, after, EdgeKind.STREAM)
            awaited.add(unit)
            found.notes[UNRESOLVED] += 1
            break


def _is_awaited(unit: int, awaited: set[int], units: Units, streams: dict[int, list[int]]) -> bool:
    """Whether somebody waits for a unit, or for a later one of its stream."""
    if unit in awaited:
        return True
    stream = int(units.stream[unit])
    if stream == NO_STREAM:
        return False
    members = streams[stream]
    later = members[members.index(unit) + 1 :]
    return any(other in awaited or not units.collective[other] for other in later)


def _others(found: _Found, streams: dict[int, list[int]], unit: int) -> list[list[int]]:
    """Streams of work that a collective's result may be for."""
    units = found.units
    return [
        members
        for stream, members in streams.items()
        if stream != units.stream[unit] and not units.collective[members].all()
    ]


def _held_back(
    found: _Found, streams: dict[int, list[int]], talks: list[int], awaited: set[int]
) -> None:
    """Rule 5."""
    units = found.units
    patience = _AT_ONCE if units.device else _WOKEN
    for unit in talks:
        end = found.end[unit]
        if unit in awaited:
            continue
        for members in _others(found, streams, unit):
            starts = units.start[members]
            at = int(np.searchsorted(starts, end - 1, side="left"))
            if at >= len(members):
                continue
            after = members[at]
            idle = at == 0 or found.end[members[at - 1]] < end - JITTER
            ready = units.issued[after] < end or not units.device
            soon = found.start[after] - end <= patience
            if unit < after and idle and ready and soon and found.add(unit, after, EdgeKind.STREAM):
                awaited.add(unit)
                found.notes[BY_TIME] += 1


def _optimizer(
    found: _Found,
    streams: dict[int, list[int]],
    links: Links | None,
    talks: list[int],
    awaited: set[int],
) -> None:
    """Rule 6."""
    units = found.units
    spans = [s for s in links.spans if s.name.startswith(OPTIMIZER)] if links else []
    for unit in talks:
        if _is_awaited(unit, awaited, units, streams):
            continue
        for span in spans:
            if span.start < units.issued[unit]:
                continue
            done = False
            for members in _others(found, streams, unit):
                after = _issued_from(units, members, span.start)
                inside = after >= 0 and units.issued[after] < span.end
                if inside and found.add(unit, after, EdgeKind.STREAM):
                    done = True
            if done:
                awaited.add(unit)
                found.notes[BY_OPTIMIZER] += 1
                break
