"""Streams and events as order: the predecessors of the next op of a stream.

The idea: ops get numbers as they are issued.  A moment is, for every stream, the last op that is
complete by then, as a vector clock; a stream's ops follow each other, and waiting merges moments.
So an op names only those earlier ops that its own stream does not imply.

    timeline = Timeline()
    timeline.issue(0)                                  # op 0 on stream 0
    timeline.wait(1, timeline.moment(0))               # stream 1 waits for stream 0
    timeline.issue(1)                                  # -> Issued(number=1, after=(0,))
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

#: Stream -> number of its last complete op.
Moment = Mapping[Hashable, int]

#: Nothing is complete yet.
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
        self._clocks: list[Moment] = []  # of every op: the moment when it starts, itself excluded
        self._last: dict[Hashable, int] = {}
        self._waits: dict[Hashable, Moment] = {}
        self._host: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._streams)

    def moment(self, stream: Hashable) -> Moment:
        """The moment when everything issued on a stream is complete: an event's record."""
        found = dict(self._pending(stream))
        last = self._last.get(stream)
        if last is not None:
            found[stream] = last
        return found

    def after_op(self, number: int) -> Moment:
        """The moment when an op is complete."""
        return {**self._clocks[number], self._streams[number]: number}

    def wait(self, stream: Hashable, moment: Moment) -> None:
        """Ops issued on a stream from now on come after a moment."""
        merged = dict(self._pending(stream))
        _merge(merged, moment)
        self._waits[stream] = merged

    def host_wait(self, moment: Moment) -> None:
        """The host waits: everything it issues from now on, on any stream, follows a moment."""
        _merge(self._host, moment)

    def moment_of_all(self) -> Moment:
        """The moment when everything issued is complete: a device's synchronisation."""
        return dict(self._last)

    def issue(
        self, stream: Hashable, data: Iterable[int] = (), order: Iterable[int] = ()
    ) -> Issued:
        """Issue an op.

        Args:
            stream: the stream on which it runs.
            data: ops whose results it takes: their order is implied.
            order: other ops that it must come after.

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
        # One of them may be implied by another: keep those that no other op comes after.
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
        # Most ops change nothing: they share the clock of the op before.
        shared: Moment = clock
        if last is not None and self._clocks[last] == clock:
            shared = self._clocks[last]
        self._streams.append(stream)
        self._clocks.append(shared)
        self._last[stream] = number
        self._waits[stream] = shared
        return Issued(number, after)

    def _pending(self, stream: Hashable) -> Moment:
        """The predecessors of the next op of a stream on other streams."""
        return self._waits.get(stream, START)


def _merge(into: dict[Hashable, int], moment: Moment) -> None:
    for stream, op in moment.items():
        if into.get(stream, -1) < op:
            into[stream] = op
