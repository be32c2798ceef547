"""When the units of the traced ranks began and were launched, on one clock.

The idea: the step begins when the first unit of any rank does.  Ranks on several hosts have clocks
of their own; as all members leave a collective nearly together, the ends of shared collectives tell
how far one clock is ahead of another.

    timings = timings_of(recorded, meetings)
    timings[0].start
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median_low

import numpy as np
from numpy.typing import NDArray

from flint.graph.timing import UNKNOWN_LAUNCH, Timing
from flint.post_execution.edges import JITTER, queues_of
from flint.post_execution.host_device_links import Links
from flint.post_execution.load_rank import Recorded
from flint.post_execution.meetings import Meetings
from flint.post_execution.units import Units

Ints = NDArray[np.int64]

#: So many units that ended before a call did are looked at for the one that it waited for.
_LOOKED_BACK = 16


def timings_of(recorded: Mapping[int, Recorded], meetings: Meetings) -> dict[int, Timing]:
    """Times of each traced rank's units; of traces without times none.

    Args:
        recorded: the ranks.
        meetings: which of their exchanges are the same.
    """
    timed = {rank: item for rank, item in recorded.items() if item.units.timed}
    if not timed:
        return {}
    ahead = _clocks(timed, meetings)
    origin = min(int(item.units.start.min()) - ahead[rank] for rank, item in timed.items())
    found = {}
    for rank, item in timed.items():
        units, zero = item.units, origin + ahead[rank]
        launch = np.maximum(units.launch - zero, 0)
        launch[units.launch < 0] = UNKNOWN_LAUNCH
        found[rank] = Timing(units.start - zero, launch, _host_waits(units, item.links))
    return found


def _clocks(timed: Mapping[int, Recorded], meetings: Meetings) -> dict[int, int]:
    """How far each rank's clock is ahead of the lowest one's, nanoseconds."""
    over: dict[int, int] = {}
    ahead: dict[int, int] = {}
    for rank, item in timed.items():
        units = [unit for unit, exchange in enumerate(item.exchanges) if exchange is not None]
        ends = dict(zip(meetings.number[rank], item.units.end[units].tolist(), strict=True))
        ends = {
            number: end for number, end in ends.items() if not meetings.exchange[number].message
        }
        apart = [end - over[number] for number, end in ends.items() if number in over]
        if apart:
            ahead[rank] = median_low(apart)
        else:  # ranks that never meet begin together
            first = min(ahead, default=rank)
            ahead[rank] = int(item.units.start.min() - timed[first].units.start.min())
            ahead[rank] += ahead.get(first, 0)
        for number, end in ends.items():
            over.setdefault(number, end - ahead[rank])
    return ahead


def _host_waits(units: Units, links: Links | None) -> Ints:
    """(unit, unit launched next) where the host went on only when the first one was over."""
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
    for start, end in links.blocking:
        after = int(np.searchsorted(reached, end, "left"))
        last = int(np.searchsorted(ends, end + JITTER, "right")) - 1
        for place in range(last, max(-1, last - _LOOKED_BACK), -1):
            before = int(order[place])
            if ends[place] <= start:
                break
            if units.launch[before] <= start and before < after < len(units):
                found[before, after] = None
                break
    return np.array(list(found), np.int64).reshape(-1, 2)
