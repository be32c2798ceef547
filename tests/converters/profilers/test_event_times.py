"""Times of events: many at a time as one by one."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from flint.converters.profilers.kineto.arguments import Event
from flint.converters.profilers.kineto.events import times_of_all
from tests.support.shared import examples

_MICROSECONDS = st.one_of(
    st.integers(0, 2 * 10**15), st.floats(0, 2e15), st.integers(0, 10**9).map(lambda n: n / 1000)
)


def nanoseconds(microseconds):
    return microseconds * 1000 if type(microseconds) is int else round(microseconds * 1000)


@given(st.lists(st.tuples(_MICROSECONDS, _MICROSECONDS), max_size=6))
@settings(max_examples=examples(300))
def test_times_of_many_events_are_exact(times):
    """Nanoseconds since 1970 are beyond the 53 bits of a float: whole microseconds stay whole."""
    events = [Event(ph="X", cat="kernel", ts=ts, dur=dur) for ts, dur in times]
    starts, durations = times_of_all(events, Path("t.json"))
    expected = [(nanoseconds(ts), nanoseconds(dur)) for ts, dur in times]
    assert list(zip(starts, durations, strict=True)) == expected


def test_whole_microseconds_since_1970_are_exact():
    events = [Event(ph="X", cat="kernel", ts=1665536373729077 + n, dur=n) for n in range(4)]
    starts, durations = times_of_all(events, Path("t.json"))
    assert starts == [1665536373729077000 + 1000 * n for n in range(4)]
    assert durations == [0, 1000, 2000, 3000]
