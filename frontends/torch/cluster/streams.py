"""Streams and events as order: what the next op of a stream comes after.

The idea: ops get numbers as they are issued.  A moment is, for every stream, the last op that is
over by then, as a vector clock; a stream's ops follow each other, and waiting merges moments.  So
of all the ops before it, an op names only those that its own stream does not imply.

    timeline = Timeline()
    timeline.issue(0)                                  # op 0 on stream 0
    timeline.wait(1, timeline.moment(0))               # stream 1 waits for stream 0
    timeline.issue(1)                                  # -> Issued(number=1, after=(0,))
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

#: Stream -> number of its last op that is over.
Moment = Mapping[Hashable, int]

#: Nothing is over yet.
START: Moment = {}


@dataclass(frozen=True, slots=True)
class Issued:
    """An op's place: its number, and the ops beyond its own stream that it waits for."""

    number: int
    after: tuple[int, ...]


class Timeline:
    """The order of the ops of one step."""

    def __init__(self) -> None:
        self._streams: list[Hashable] = []  # of every op
        self._clocks: list[Moment] = []  # of every op: what is over when it starts, itself excluded
        self._last: dict[Hashable, int] = {}
        self._waits: dict[Hashable, Moment] = {}
        self._host: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def moment(self, stream: Hashable) -> Moment:
        """What is over once all that has been issued on a stream is: an event's record."""
        found = dict(self._pending(stream))
        last = self._last.get(stream)
        if last is not None:
            found[stream] = last
        return found

    def after_op(self, number: int) -> Moment:
        """What is over once an op is."""
        return {**self._clocks[number], self._streams[number]: number}

    def wait(self, stream: Hashable, moment: Moment) -> None:
        """Ops issued on a stream from now on come after a moment."""
        merged = dict(self._pending(stream))
        _merge(merged, moment)
        self._waits[stream] = merged

    def host_wait(self, moment: Moment) -> None:
        """The host waits: whatever it issues from now on, on any stream, comes after a moment."""
        _merge(self._host, moment)

    def moment_of_all(self) -> Moment:
        """What is over once everything issued is: a device's synchronisation."""
        return dict(self._last)

    def issue(
        self, stream: Hashable, data: Iterable[int] = (), order: Iterable[int] = ()
    ) -> Issued:
        """Issue an op.

        Args:
            stream: where it runs.
            data: ops whose results it takes: it comes after them, which needs no saying.
            order: ops that it must come after all the same.

        Returns:
            Its number, and which ops it waits for beyond those that its stream's order implies.
        """
        number = len(self._streams)
        last = self._last.get(stream)
        known = dict(self._clocks[last]) if last is not None else {}
        clock = dict(self._pending(stream))
        _merge(clock, self._host)
        clock.pop(stream, None)
        implied = dict(known)
        for other in data:
            _merge(implied, self.after_op(other))
        for other in sorted(order, reverse=True):
            where = self._streams[other]
            if where != stream and max(clock.get(where, -1), implied.get(where, -1)) < other:
                _merge(clock, self.after_op(other))
        clock.pop(stream, None)
        new = [op for where, op in clock.items() if known.get(where, -1) < op]
        _merge(clock, implied)
        clock.pop(stream, None)
        # One of them may be implied by another: keep those that no other one comes after.
        after = tuple(
            sorted(
                op
                for op in new
                if not any(
                    self._clocks[other].get(self._streams[op], -1) >= op
                    for other in new
                    if other != op
                )
            )
        )
        # Most ops learn nothing new: they share the clock of the op before.
        shared: Moment = clock
        if last is not None and self._clocks[last] == clock:
            shared = self._clocks[last]
        self._streams.append(stream)
        self._clocks.append(shared)
        self._last[stream] = number
        self._waits[stream] = shared
        return Issued(number, after)

    def _pending(self, stream: Hashable) -> Moment:
        """What the next op of a stream comes after on other streams."""
        return self._waits.get(stream, START)


def _merge(into: dict[Hashable, int], moment: Moment) -> None:
    for stream, op in moment.items():
        if into.get(stream, -1) < op:
            into[stream] = op
