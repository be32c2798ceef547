"""The recording device: a PyTorch device that computes nothing and remembers streams and events.

The idea: PyTorch allows a device to be defined in Python (its PrivateUse1 backend).  This one has
no memory and no kernels: tensors on it are fake tensors.  But code uses streams and events on it as
on a GPU; a timeline keeps the dependencies and numbers the recorded ops.

    with torch.device("flint"): ...             # after registration.register()
    stream = torch.flint.Stream(); stream.wait_event(event)
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch

from flint.frontends.torch.cluster.streams import START, Moment, Timeline

#: Name of the device type.
NAME = "flint"


class _State:
    """The current state: the timeline of the recording, and the stack of streams."""

    timeline: Timeline = Timeline()
    streams: list[Stream]
    numbers = itertools.count(1)


def timeline() -> Timeline:
    """The timeline that streams and events write to."""
    return _State.timeline


def restart() -> Timeline:
    """Start a new timeline: everything issued before is complete."""
    _State.timeline = Timeline()
    return _State.timeline


def use(line: Timeline) -> Callable[[], None]:
    """Make a timeline the current one; returns what makes the one before it current again."""
    before, _State.timeline = _State.timeline, line
    return functools.partial(setattr, _State, "timeline", before)


def current_stream() -> Stream:
    """The stream that ops are issued on."""
    return _State.streams[-1]


def set_stream(stream: Stream) -> None:
    """Make a stream the current one permanently."""
    _State.streams[-1] = stream


class Stream:
    """A queue of ops on the device; number 0 is the default stream."""

    def __init__(
        self, device: Any = None, priority: int = 0, *, stream_id: int | None = None, **_: Any
    ) -> None:
        self.stream_id = next(_State.numbers) if stream_id is None else stream_id
        self.priority = priority
        self.device_index = 0
        self.device_type = NAME
        self.cuda_stream = self.stream_id

    @property
    def device(self) -> torch.device:
        """The recording device."""
        return torch.device(NAME, 0)

    def wait_event(self, event: Event) -> None:
        """Later ops of this stream come after what the event recorded."""
        _State.timeline.wait(self.stream_id, event.recorded(_State.timeline))

    def wait_stream(self, stream: Stream) -> None:
        """Later ops of this stream come after all that was issued on the other."""
        _State.timeline.wait(self.stream_id, _State.timeline.moment(stream.stream_id))

    def record_event(self, event: Event | None = None) -> Event:
        """Record an event on this stream."""
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """The host waits for this stream."""
        _State.timeline.host_wait(_State.timeline.moment(self.stream_id))

    def query(self) -> bool:
        """Whether all is over: always, since nothing runs."""
        return True

    def is_capturing(self) -> bool:
        """Whether a graph of CUDA is being captured."""
        return bool(torch.cuda.is_current_stream_capturing())

    def __enter__(self) -> Stream:
        _State.streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _State.streams.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.stream_id == other.stream_id

    def __hash__(self) -> int:
        return hash((NAME, self.stream_id))


class Event:
    """A point in a stream."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._moment: Moment = START
        self._timeline: Timeline | None = None

    def recorded(self, line: Timeline) -> Moment:
        """The moment of the last record; one of an earlier timeline is over."""
        return self._moment if self._timeline is line else START

    def record(self, stream: Stream | None = None) -> Event:
        """Remember what is issued on a stream (default: the current one)."""
        self._timeline = _State.timeline
        self._moment = self._timeline.moment((stream or current_stream()).stream_id)
        return self

    def wait(self, stream: Stream | None = None) -> None:
        """Later ops of a stream (default: the current one) come after this event."""
        (stream or current_stream()).wait_event(self)

    def synchronize(self) -> None:
        """The host waits for this event."""
        _State.timeline.host_wait(self.recorded(_State.timeline))

    def query(self) -> bool:
        """Whether it is over: always, since nothing runs."""
        return True

    def elapsed_time(self, _: Event) -> float:
        """Milliseconds between two events: no time passes here, but rates must not divide by 0."""
        return 1.0


_State.streams = [Stream(stream_id=0)]
