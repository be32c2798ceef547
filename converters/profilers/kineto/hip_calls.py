"""Calls of HIP, and what they launched, in JSON of AMD's rocprof and of rocmProfileData.

The idea: events of both have no numbers, but an arrow leads to each event on a device.  It begins
on the thread of the call that launched it: when it begins (rocprof), or shortly before it ends
(rocmProfileData), or, if that is earlier, when the device begins.

    numbers = number_calls(calls, arrows, path)     # arrows: {where a kernel is: an arrow's begin}
    numbers["2", "0", "8306017670485"]              # the number of the call; calls have it, too
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import numpy as np

from flint.converters.profilers.kineto.arguments import Event
from flint.converters.profilers.kineto.events import times_of_all
from flint.mesh.ragged import Ints

#: A moment as the file writes it: process, thread, microseconds.
At: TypeAlias = tuple[str, str, str]
#: Categories of these arrows, and how many nanoseconds after them the call has begun at the latest:
#: microseconds are cut to whole ones; 2 before a call's end may be before it (ROCm/rocmProfileData,
#: tools/rpd2tracing.py).
ARROWS: Final = {"DataFlow": 999, "api_op": 2_000}
#: What names of calls begin with; other events on their threads are a user's ranges.
CALLS: Final = ("hip", "hsa")


def at(event: Event) -> At:
    """Where an event begins."""
    return str(event.pid), str(event.tid), str(event.ts)


def number_calls(calls: Sequence[Event], arrows: Mapping[At, Event], path: Path) -> dict[At, int]:
    """Give calls their numbers, as Kineto's have, and find those of what they launched.

    Args:
        calls: calls of all threads; they get a number as their ``correlation``.
        arrows: where an event on a device begins -> the begin of the arrow to it.

    Raises:
        FlintError: an arrow's time is none.
    """
    start, took = (np.array(times, np.int64) for times in times_of_all(calls, path))
    threads: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number in np.argsort(start, kind="stable").tolist():
        threads[at(calls[number])[:2]].append(number)
        calls[number].args = msgspec.Raw(msgspec.json.encode({"correlation": number}))
    begins = {thread: start[numbers] for thread, numbers in threads.items()}
    moments, _ = times_of_all([Event(ts=arrow.ts) for arrow in arrows.values()], path)
    found = {}
    for (place, arrow), moment in zip(arrows.items(), moments, strict=True):
        thread = at(arrow)[:2]
        before = _last(begins.get(thread), moment + ARROWS[arrow.cat])
        if before >= 0:
            number = threads[thread][before]
            if moment <= start[number] + took[number]:
                found[place] = number
    return found


def _last(begins: Ints | None, moment: int) -> int:
    """The place of the last begin that is not after a moment; -1 without."""
    return -1 if begins is None else bisect_right(begins, moment) - 1
