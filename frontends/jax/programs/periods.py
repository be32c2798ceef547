"""The step of a program: the calls that it repeats.

The idea: a training loop makes the same calls again and again, so its step is a stretch of calls
that equals the stretch before it.  An evaluation repeats itself too, and so does each gradient of
an accumulation.  A whole training step differs from those in that it renews its
operands: parameters and optimizer state come from the step before, and almost nothing stays
unchanged.  New data count as neither.  Such a period is ``whole`` and is taken when it is seen; of
others, the one that renews most is taken when the program has ended or no longer repeats anything
else.

A thread that prepares batches makes calls at its own pace, so each thread has its own periods.

    watcher = Periods()
    watcher.add(Made(key="g", ...))         # the period that this call completes, or None
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

#: A whole period leaves at most this share of its operands' bytes unchanged.
_UNCHANGED = 0.1
#: Number of earlier calls of the same kind that are tried as the one a period before.
_TRIED = 16
#: A period that is seen as often in a row, and renews this share of what a whole one around it
#: renews, is the step: the other one adds what comes rarely (a mask that is computed anew).
_RARE, _MOST = 128, 2 / 3


@dataclass(frozen=True, slots=True)
class Made:
    """The data of a call for finding periods.

    Attributes:
        key: equal for calls of the same kind.
        name: name of the called function.
        jitted: whether the user's code, or a library's, jitted it.
        given: its operands that are not constants: the origin of each, the earliest call before
            which it existed (None for data, which no call of this thread has computed), and its
            bytes.
        thread: that makes it; 0 is the program's first.
    """

    key: Hashable
    name: str
    jitted: bool
    given: tuple[tuple[Hashable, int | None, int], ...]
    thread: int = 0


@dataclass(slots=True)
class Period:
    """A stretch of calls that the program repeats.

    Attributes:
        line: numbers of its thread's calls.
        first: position among them of its first call when it was first seen.
        length: number of calls.
        name: name of its largest jitted function.
        renewed, unchanged, fresh: bytes of its operands: computed by the period before, older, and
            data that the period before did not have.
        count: how often it was seen in a row.
        last: position after its last call.
        thread: its thread.
        often: whether it is the step although it is not whole: see ``_RARE``.
    """

    line: Sequence[int]
    first: int
    length: int
    name: str
    renewed: int
    unchanged: int
    fresh: int
    count: int = 2
    last: int = 0
    thread: int = 0
    often: bool = False

    @property
    def whole(self) -> bool:
        """Whether it renews its operands, as a training step does."""
        return self.renewed > 0 and self.unchanged <= _UNCHANGED * self.renewed

    @property
    def began(self) -> int:
        """Position of the first call of its repetitions in a row."""
        return self.last - self.count * self.length

    def goes_on(self, thread: int, end: int) -> bool:
        """Whether it repeats itself at a position, from which a part of it may be missing."""
        return self.thread == thread and self.last > end - self.length

    def calls_of(self, number: int) -> Sequence[int]:
        """Numbers of the calls of the ``number``-th time, from 1."""
        first = self.first + (number - 1) * self.length
        return self.line[first : first + self.length]


@dataclass(slots=True)
class Periods:
    """The calls of a program, and the periods in them."""

    calls: list[Made] = field(default_factory=list)
    found: dict[tuple[Hashable, ...], Period] = field(default_factory=dict)
    _lines: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _at: dict[Hashable, list[int]] = field(default_factory=lambda: defaultdict(list))

    def add(self, call: Made) -> Period | None:
        """Note a call; returns the period that it completes, if any."""
        line = self._lines[call.thread]
        place = len(line)
        line.append(len(self.calls))
        self.calls.append(call)
        before = self._at[call.thread, call.key]
        completed: list[Period] = []
        going_on = [one for one in self.found.values() if one.goes_on(call.thread, place + 1)]
        for earlier in reversed(before[-_TRIED:]):
            length = place - earlier
            inside = [
                one
                for one in (*completed, *going_on)
                if length % one.length == 0
                and (one.length < length and one.began <= place + 1 - 2 * length + one.length)
            ]
            if any(one.whole for one in inside):  # the same several times
                continue
            period = self._completed(call.thread, place + 1, length, bool(inside))
            completed += [period] if period is not None else []
        before.append(place)
        found = min(completed, key=lambda one: (not one.whole, one.length), default=None)
        return (found and self._often_inside(found)) or found

    def of_other_threads(self, period: Period) -> dict[str, int]:
        """Jitted functions that other threads have called so far, and how often."""
        names = (one.name for one in self.calls if one.jitted and one.thread != period.thread)
        return dict(Counter(names))

    def leave_out(self) -> None:
        """Note a call that belongs to no period: it computes a constant of a traced function."""
        self.calls.append(Made(None, "", False, ()))

    def _often_inside(self, outer: Period) -> Period | None:
        """The period that a whole one repeats most of the time, if it renews nearly as much."""
        for one in self.found.values() if outer.whole else ():
            inside = one.length < outer.length and one.last > outer.last - outer.length
            if one.thread == outer.thread and inside and one.count >= _RARE:
                one.often = one.often or one.renewed >= _MOST * outer.renewed
                if one.often:
                    return one
        return None

    def best(self, periods: Iterable[Period] | None = None) -> Period | None:
        """The period that renews most; among equals that with most operand bytes, then the
        shortest.
        """
        some = self.found.values() if periods is None else periods
        return max(
            some, key=lambda one: (one.whole, one.renewed, one.unchanged, -one.length), default=None
        )

    def single(self, name: str) -> Period | None:
        """The last call of a jitted function as a period that was seen once, or None."""
        for number in reversed(range(len(self.calls))):
            call = self.calls[number]
            if call.jitted and call.name == name:
                line = self._lines[call.thread]
                place, given = line.index(number), sum(size for _, _, size in call.given)
                return Period(
                    line, place, 1, name, 0, given, 0, count=1, last=place + 1, thread=call.thread
                )
        return None

    def _completed(self, thread: int, end: int, length: int, several: bool) -> Period | None:
        """The period of that length that ends now, if the calls before it equal its calls.

        Several repetitions of a shorter one are a separate period if only together they renew their
        operands, as with several models in turn.
        """
        begin, line = end - 2 * length, self._lines[thread]
        if begin < 0 or any(
            self.calls[line[n]].key != self.calls[line[n + length]].key
            for n in range(begin, end - length)
        ):
            return None
        calls = [self.calls[number] for number in line[begin:end]]
        before, own = calls[:length], calls[length:]
        if not any(one.jitted for one in own):
            return None
        keys = (thread, *(one.key for one in own))
        known = self.found.get(keys)
        if known is not None and known.last > end - length:
            return None
        if known is not None and known.last == end - length:
            known.count, known.last = known.count + 1, end
            return known
        if known is None and any(
            other.length == length and other.last > begin and _rotated(other_keys, keys)
            for other_keys, other in self.found.items()
        ):
            return None
        given = _bytes(before, own, line[begin], line[end - length])
        period = Period(line, begin, length, _name(own), *given, last=end, thread=thread)
        if several and not period.whole:
            return None
        self.found[keys] = period
        return period


def _bytes(
    before: Sequence[Made], own: Sequence[Made], first: int, begin: int
) -> tuple[int, int, int]:
    """Renewed, unchanged and fresh bytes of a period.

    Args:
        before: the calls of the period before it.
        own: its calls.
        first, begin: numbers of the first call of either.
    """
    known = {origin for call in before for origin, _, _ in call.given}
    sizes = {"renewed": 0, "unchanged": 0, "fresh": 0}
    outside = {
        origin: (made, size)
        for call in own
        for origin, made, size in call.given
        if made is None or made <= begin
    }
    for origin, (made, size) in outside.items():
        if made is None:
            sizes["unchanged" if origin in known else "fresh"] += size
        else:
            sizes["renewed" if made > first else "unchanged"] += size
    return sizes["renewed"], sizes["unchanged"], sizes["fresh"]


def _name(calls: Sequence[Made]) -> str:
    jitted = [one for one in calls if one.jitted]
    return max(jitted, key=lambda one: sum(size for _, _, size in one.given)).name


def _rotated(one: tuple[Hashable, ...], other: tuple[Hashable, ...]) -> bool:
    """Whether two sequences of one thread are rotations of each other."""
    if one[0] != other[0]:
        return False
    twice, wanted = one[1:] * 2, other[1:]
    return any(twice[n : n + len(wanted)] == wanted for n in range(len(one) - 1))
