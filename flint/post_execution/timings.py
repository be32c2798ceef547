"""When the units of the traced ranks began and were launched, on one clock.

The idea: the step begins with the first unit of any rank and ends with the last.  If units ran on a
host, it lasts from the start of its mark to the end, so that the host's other work is included.
Ranks on one host have one clock, if their traces name it.  Else, as all members leave a collective
at nearly the same time, the ends of shared collectives show how far one clock is ahead of another.
Ranks that share none are assumed to have one clock, unless a message would be received before it
was sent.

    timings = timings_of(recorded, clocks_of(recorded, meetings))
    timings[0].start
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from flint.graph.timing import UNKNOWN_LAUNCH, Timing
from flint.mesh.ragged import Ints
from flint.post_execution.edges import JITTER, queues_of
from flint.post_execution.links import Links
from flint.post_execution.load_rank import Ran, Recorded
from flint.post_execution.meetings import Meetings
from flint.post_execution.units import Units

Rank = TypeVar("Rank", bound=Ran)
#: The largest difference of two clocks, in nanoseconds.
_LATEST = 1 << 62
#: Collectives that no member leaves before the last one has begun them.
_ALL_MEET = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})
#: How many units that ended before a call are searched for the one that it waited for.
_LOOKED_BACK = 16


def timings_of(recorded: Mapping[int, Ran], ahead: Mapping[int, int]) -> dict[int, Timing]:
    """Times of each traced rank's units; none for traces without times.

    Args:
        recorded: the ranks.
        ahead: how far each clock is ahead, for ranks with times.
    """
    timed = {rank: item for rank, item in recorded.items() if item.units.timed}
    if not timed:
        return {}
    marks = {rank: _mark(item) for rank, item in timed.items()}
    origin = min(
        min(int(item.units.start.min()), marks[rank][0]) - ahead[rank]
        for rank, item in timed.items()
    )
    found = {}
    for rank, item in timed.items():
        units, zero = item.units, origin + ahead[rank]
        over = max(0, marks[rank][1] - zero)
        launch = np.maximum(units.launch - zero, 0)
        launch[units.launch < 0] = UNKNOWN_LAUNCH
        found[rank] = Timing(units.start - zero, launch, _host_waits(units, item.links), over)
    return found


def _mark(item: Ran) -> tuple[int, int]:
    """Start and end of the profiler's step mark for units on a host, ns.

    Without a mark, those of all ops of the trace; on a device, the latest possible start and the
    earliest possible end.
    """
    if item.units.device or item.links is None or not isinstance(item, Recorded):
        return _LATEST, -_LATEST
    number = int(item.trace.step[item.units.row[0]])
    if 0 <= number < len(item.links.steps):
        return item.links.steps[number]
    rows = item.trace.step == number
    start = item.trace.start[rows]
    return int(start.min()), int((start + item.trace.duration[rows]).max())


def together(
    recorded: Mapping[int, Rank], meetings: Meetings, ahead: Mapping[int, int]
) -> dict[int, Rank]:
    """The ranks, with each exchange ending at the same time for all members.

    A message ends for its sender when it is received, at the latest: a library may record it until
    its sender asks whether it has ended, as gloo does.  For its receiver it ends when it is gone,
    and a collective when it does for the first of its members; one that notices later, because its
    processor was busy, loses that time afterwards.  If clocks contradict each other, durations of
    collectives stay unchanged.

    Args:
        recorded: the ranks.
        meetings: which of their exchanges are the same.
        ahead: how far each clock is ahead, for ranks with times.
    """
    if len(ahead) < 2:
        return dict(recorded)
    sides = {rank: _sides(recorded[rank], meetings.number[rank]) for rank in ahead}
    last_begin: dict[int, int] = {}
    first_end: dict[int, int] = {}
    for rank, mine in sides.items():
        for number, (begin, end, _) in mine.items():
            last_begin[number] = max(last_begin.get(number, -_LATEST), begin - ahead[rank])
            first_end[number] = min(first_end.get(number, _LATEST), end - ahead[rank])
    found = dict(recorded)
    for rank, mine in sides.items():
        units = recorded[rank].units
        duration = units.duration.copy()
        for number, (begin, end, unit) in mine.items():
            exchange = meetings.exchange[number]
            if not exchange.message:
                if last_begin[number] < first_end[number]:
                    duration[unit] = first_end[number] + ahead[rank] - begin
                continue
            source, target = exchange.group
            other = target if source == rank else source
            if number in sides.get(other, ()):
                theirs = sides[other][number].end - ahead[other] + ahead[rank]
                duration[unit] = max(0, min(end, theirs) - begin)
        found[rank] = replace(recorded[rank], units=replace(units, duration=duration))
    return found


def clocks_of(
    recorded: Mapping[int, Ran], meetings: Meetings, clock: Mapping[int, int] | None = None
) -> dict[int, int]:
    """How far each rank's clock is ahead of the lowest rank's, in nanoseconds, for ranks with
    times.

    Args:
        recorded: the ranks.
        meetings: which of their exchanges are the same.
        clock: number of each rank's clock; by default each has its own.
    """
    timed = {rank: item for rank, item in recorded.items() if item.units.timed}
    sides = {
        rank: {
            number: side
            for number, side in _sides(item, meetings.number[rank]).items()
            if meetings.exchange[number].message
        }
        for rank, item in timed.items()
    }
    together: dict[int, list[int]] = defaultdict(list)
    for rank in timed:
        together[rank if clock is None else clock[rank]].append(rank)
    over: dict[int, int] = {}
    ahead: dict[int, int] = {}
    for ranks in together.values():
        ends = [_shared_ends(timed[rank], meetings, rank) for rank in ranks]
        apart = [end - over[number] for each in ends for number, end in each if number in over]
        bounds = None if apart else _bounds(ranks, sides, meetings, ahead)
        if apart:
            found = sorted(apart)[(len(apart) - 1) // 2]  # the lower median
        elif bounds is not None:
            low, high = bounds
            found = (low + high) // 2 if low > high else min(max(0, low), high)
        else:  # ranks that never meet begin at the same time
            first = min(ahead, default=ranks[0])
            begin = min(int(timed[rank].units.start.min()) for rank in ranks)
            found = begin - int(timed[first].units.start.min()) + ahead.get(first, 0)
            found = found if ahead else 0
        for rank, each in zip(ranks, ends, strict=True):
            ahead[rank] = found
            for number, end in each:
                over.setdefault(number, end - found)
    return ahead


def hosts_clocks(
    recorded: Mapping[int, Ran], meetings: Meetings, hosts: Mapping[int, str]
) -> dict[int, int]:
    """The number of each rank's clock: ranks of one host share it, unless a collective contradicts.

    No member leaves a collective in which all data meet before the last one has begun it: then two
    machines have the same name.

    Args:
        recorded: the ranks.
        meetings: which of their exchanges are the same.
        hosts: name of each rank's machine, "" if unknown.
    """
    found = {rank: rank for rank in recorded}
    for host in set(hosts.values()) - {""}:
        ranks = [rank for rank in recorded if hosts[rank] == host and recorded[rank].units.timed]
        begun: dict[int, int] = defaultdict(lambda: -_LATEST)
        ended: dict[int, int] = defaultdict(lambda: _LATEST)
        for rank in ranks:
            for number, side in _sides(recorded[rank], meetings.number[rank]).items():
                if meetings.exchange[number].kind in _ALL_MEET:
                    begun[number] = max(begun[number], side.begin)
                    ended[number] = min(ended[number], side.end)
        if all(begun[number] <= ended[number] + JITTER for number in begun):
            found.update(dict.fromkeys(ranks, min(ranks, default=0)))
    return found


def _shared_ends(item: Ran, meetings: Meetings, rank: int) -> list[tuple[int, int]]:
    """The collectives of a rank, and when each ended on its clock."""
    units = [unit for unit, exchange in enumerate(item.exchanges) if exchange is not None]
    ends = item.units.end[units].tolist()
    return [
        (number, end)
        for number, end in zip(meetings.number[rank], ends, strict=True)
        if not meetings.exchange[number].message
    ]


def _bounds(
    ranks: Sequence[int],
    sides: Mapping[int, Mapping[int, _Side]],
    meetings: Meetings,
    ahead: Mapping[int, int],
) -> tuple[int, int] | None:
    """Bounds of how far the clock of some ranks is ahead, from their messages; None without any.

    Args:
        ranks: the ranks with the clock.
        sides: the messages of each rank.
        meetings: which of their exchanges are the same.
        ahead: clocks that are known, nanoseconds.
    """
    low, high = -_LATEST, _LATEST
    messages = [(rank, *item) for rank in ranks for item in sides[rank].items()]
    for rank, number, mine in messages:
        source, target = meetings.exchange[number].group
        other = target if source == rank else source
        theirs = sides[other].get(number) if other in ahead else None
        if theirs is None:
            continue
        if source == rank:  # sent before it was received
            low = max(low, mine.begin - theirs.end + ahead[other])
        else:
            high = min(high, mine.end - theirs.begin + ahead[other])
    return None if (low, high) == (-_LATEST, _LATEST) else (low, high)


class _Side(NamedTuple):
    """One side of an exchange: nanoseconds, and the unit."""

    begin: int
    end: int
    unit: int


def _sides(item: Ran, numbers: Sequence[int]) -> dict[int, _Side]:
    """A rank's exchanges by their meetings; for a batch, only the one that has its time."""
    exchanges = [unit for unit, exchange in enumerate(item.exchanges) if exchange is not None]
    begins, ends = (times[exchanges].tolist() for times in (item.units.start, item.units.end))
    return {
        number: _Side(begin, end, unit)
        for number, begin, end, unit in zip(numbers, begins, ends, exchanges, strict=True)
        if end > begin
    }


def _host_waits(units: Units, links: Links | None) -> Ints:
    """(unit, unit launched next) if the host continued only after the first one had ended."""
    if links is None or not units.device:
        return np.zeros((0, 2), np.int64)
    reached = np.maximum.accumulate(units.launch)
    found: dict[tuple[int, int], None] = {}
    streams = queues_of(units, units.stream)
    for wait in links.host_waits:
        after = int(np.searchsorted(reached, wait.end, "left"))
        for stream, queue in streams.items():
            before = queue.issued_before(wait.start)
            if wait.stream in (-1, stream) and 0 <= before < after < len(units):
                found[before, after] = None
    order = np.argsort(units.end, kind="stable")
    ends = units.end[order]
    begins, overs = np.array(links.blocking, np.int64).reshape(-1, 2).T
    afters = np.searchsorted(reached, overs, "left").tolist()
    lasts = (np.searchsorted(ends, overs + JITTER, "right") - 1).tolist()
    for start, after, last in zip(begins.tolist(), afters, lasts, strict=True):
        for place in range(last, max(-1, last - _LOOKED_BACK), -1):
            before = int(order[place])
            if ends[place] <= start:
                break
            if units.launch[before] <= start and before < after < len(units):
                found[before, after] = None
                break
    return np.array(list(found), np.int64).reshape(-1, 2)
