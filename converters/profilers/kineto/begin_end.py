"""Events that a trace has as two: where they begin (``ph`` "B") and where they end ("E").

The idea: such events nest on each thread, so an end belongs to what began there last; the file may
have them in any order.  From "Trace Event Format", section "Duration Events".

    halves = BeginsAndEnds(path)
    halves.take(events)
    halves.whole()                 # the same events as if the file had each at once ("X")
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from flint.converters.profilers.kineto.arguments import ABSENT, Arguments, Event
from flint.converters.profilers.kineto.events import times_of_all
from flint.converters.profilers.kineto.kept import hashable

ALONE = "events that begin and never end, or end and never began (ph B and E): left out"


class BeginsAndEnds:
    """The begins and ends of a file.

    Attributes:
        alone: how many ``whole`` has found without the other.
    """

    def __init__(self, path: Path) -> None:
        """For a file."""
        self.alone = 0
        self._path, self._events = path, list[Event]()
        self._arguments = Arguments(path, dict[str, Any])

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._events)

    def take(self, events: Iterable[Event]) -> None:
        """Keep the begins and ends among events."""
        self._events.extend(event for event in events if event.ph in ("B", "E"))

    def whole(self) -> list[Event]:
        """The events in the order in which they begin.

        Raises:
            FlintError: one has no time, or damaged arguments.
        """
        starts, _ = times_of_all(self._events, self._path)
        open_of: dict[tuple[object, object], list[int]] = defaultdict(list)
        found: list[tuple[int, int]] = []
        for place in sorted(range(len(starts)), key=starts.__getitem__):
            event = self._events[place]
            running = open_of[hashable(event.pid), hashable(event.tid)]
            if event.ph == "B":
                running.append(place)
            elif running:
                found.append((running.pop(), place))
            else:
                self.alone += 1
        self.alone += sum(map(len, open_of.values()))
        found.sort(key=lambda pair: starts[pair[0]])
        return [
            self._joined(self._events[first], self._events[last], starts[last] - starts[first])
            for first, last in found
        ]

    def _joined(self, begin: Event, end: Event, nanoseconds: int) -> Event:
        """One event with the arguments of both; where they differ, those of the end."""
        begin.ph, begin.dur = "X", nanoseconds / 1000
        if end.args is not ABSENT:
            both = self._arguments.of(begin) | self._arguments.of(end)
            begin.args = msgspec.Raw(msgspec.json.encode(both))
        return begin
