"""The step of a program: the calls that it repeats.

The idea: a training loop makes the same calls again and again, so its step is a stretch of calls
that equals the stretch before it.  An evaluation repeats itself too, and so does each gradient of
an accumulation.  A whole training step differs from those in that it renews its
operands: parameters and optimizer state come from the step before, and almost nothing stays
unchanged.  New data count as neither, nor do data that stay the same.  Such a period is ``whole``,
and is taken when it is seen if it computes gradients: an environment's step renews its state as
well.  Of others, the best is taken when the program has ended or no longer repeats anything else.

A thread that prepares batches makes calls at its own pace, so each thread has its own periods.

    watcher = Periods()
    watcher.add(Made(key="g", ...))         # the period that this call completes, or None
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field

from flint.frontends.jax.programs.operand_sizes import Made, Sizes, sizes_of

#: A whole period leaves at most this share of its operands' bytes unchanged.
_UNCHANGED = 0.1
#: More times in a row than one model is trained before it is another one's turn.
_TURNS = 16
#: Number of earlier calls of the same kind that are tried as the one a period before.
_TRIED = 16
#: A period that is seen as often in a row, and renews this share of what a whole one around it
#: renews, is the step: the other one adds what comes rarely (a mask that is computed anew).
_RARE, _MOST = 128, 2 / 3


@dataclass(slots=True)
class Period:
    """A stretch of calls that the program repeats.

    Attributes:
        line: numbers of its thread's calls.
        first: position among them of its first call when it was first seen.
        length: number of calls.
        name, place: of its largest jitted function, of those with gradients if there are any; and
            the user's line that calls it.
        sizes: bytes of its operands.
        gradients: whether it computes some.
        count: how often it was seen in a row.
        last: position after its last call.
        thread: its thread.
        often: whether it is the step although it is not whole: see ``_RARE``.
    """

    line: Sequence[int]
    first: int
    length: int
    name: str
    place: str
    sizes: Sizes
    gradients: bool = False
    count: int = 2
    last: int = 0
    thread: int = 0
    often: bool = False

    @property
    def whole(self) -> bool:
        """Whether it renews its operands, as a training step does."""
        return self.sizes.renewed > 0 and self.is_little(self.sizes.unchanged)

    @property
    def trains(self) -> bool:
        """Whether it computes gradients and renews anything."""
        return self.gradients and self.sizes.renewed > 0

    @property
    def certain(self) -> bool:
        """Whether it is a training step, and not a part of one.

        What stays the same for long is no other model that is trained in turn.
        """
        few = self.is_little(self.sizes.same) or self.count >= _TURNS
        return self.whole and self.trains and few

    def is_little(self, size: int) -> bool:
        """Whether so many bytes are few beside what it renews."""
        return size <= _UNCHANGED * self.sizes.renewed

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
        found = min(completed, key=_later, default=None)
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
            inside = inside and (one.gradients or not outer.gradients)
            if one.thread == outer.thread and inside and one.count >= _RARE:
                one.often = one.often or one.sizes.renewed >= _MOST * outer.sizes.renewed
                if one.often:
                    return one
        return None

    def best(self, periods: Iterable[Period] | None = None) -> Period | None:
        """The period that trains and renews most; among equals the shortest, but of evaluations
        that with most operand bytes.
        """
        some = self.found.values() if periods is None else periods
        return max(some, key=_rank, default=None)

    def single(self, is_wanted: Callable[[str, str], bool]) -> Period | None:
        """The last wanted call of a jitted function as a period that was seen once, or None.

        Args:
            is_wanted: whether a name and a place are those of one.
        """
        for number in reversed(range(len(self.calls))):
            call = self.calls[number]
            if call.jitted and is_wanted(call.name, call.place):
                line = self._lines[call.thread]
                place, sizes = line.index(number), Sizes(unchanged=call.size)
                return Period(
                    line, place, 1, call.name, call.place, sizes, call.gradients,
                    count=1, last=place + 1, thread=call.thread,
                )  # fmt: skip
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
        sizes = sizes_of(before, own, line[begin], line[end - length])
        main = _main(own)
        period = Period(
            line, begin, length, main.name, main.place, sizes, main.gradients,
            last=end, thread=thread,
        )  # fmt: skip
        if several and not period.whole:
            return None
        self.found[keys] = period
        return period


def _later(period: Period) -> tuple[bool, bool, int]:
    return not period.certain, not period.whole, period.length


def _rank(period: Period) -> tuple[bool, bool, int, int, int]:
    sizes = period.sizes
    others = 0 if period.whole else sizes.unchanged + sizes.same  # data of an evaluation between
    return period.trains, period.whole, sizes.renewed, others, -period.length


def _main(calls: Sequence[Made]) -> Made:
    jitted = (one for one in calls if one.jitted)
    return max(jitted, key=lambda one: (one.gradients, one.size))


def _rotated(one: tuple[Hashable, ...], other: tuple[Hashable, ...]) -> bool:
    """Whether two sequences of one thread are rotations of each other."""
    if one[0] != other[0]:
        return False
    twice, wanted = one[1:] * 2, other[1:]
    return any(twice[n : n + len(wanted)] == wanted for n in range(len(one) - 1))
