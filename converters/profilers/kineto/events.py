"""What is kept of a Kineto trace: ops, kernels, calls, steps, and when they were.

The idea: one process's events as rows of numbers and names, whatever file they stood in; exports of
other profilers are turned into the same.

    Events([], [], {}, [], [], [], {}, [], None).ops.append(Op(0, 10, 1, "aten::mm", 7, -1, 0))
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from flint.errors import FlintError
from flint.post_execution.host_device_links import LinksBuilder

#: Categories of what runs on devices, of libkineto's ActivityType.cpp and of older versions.
DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "mtia_ccp_events"})
#: Nanoseconds beyond which a time is none: 2^62, so that sums stay within 64 bits.
LATEST = 1 << 62


class Op(NamedTuple):
    """An op on the host: nanoseconds, thread, the profiler's numbers of it."""

    start: int
    duration: int
    thread: object
    name: str
    external: object
    record: int  # number of the record function, -1 without
    said: int  # index into ``Events.said``


class Kernel(NamedTuple):
    """A kernel or a copy on a device: nanoseconds, stream, and what names its op.

    Each device has streams of its own, and their numbers are the same on all.
    """

    start: int
    duration: int
    device: int  # -1 where the trace does not say
    stream: object
    name: str
    external: object
    correlation: object


class LibraryCall(NamedTuple):
    """What a process group says of a collective: NCCL's while it issues it, gloo's while it runs.

    Its name is without the library's.
    """

    start: int
    end: int
    name: str
    dims: Any
    types: Any


class GloosWork(NamedTuple):
    """Gloo's own work: when, and on what."""

    start: int
    end: int
    dtype: str
    elements: int
    thread: object
    call: LibraryCall


class Events(NamedTuple):
    """What is kept.

    Attributes:
        ops, kernels: in the order of the file.
        runtime: correlation -> thread and nanosecond of the call that launches.
        steps: begin, end and name, in order.
        gloo: number of the record and the work, in order.
        said: arguments of ops.
        library: thread -> calls of a library that communicates, in order.
        updates: begin and end of optimizers' steps.
        links: what ties them to each other, where that is asked for.
    """

    ops: list[Op]
    kernels: list[Kernel]
    runtime: dict[object, tuple[object, int]]
    steps: list[tuple[int, int, str]]
    gloo: list[tuple[int, GloosWork]]
    said: list[dict[str, Any]]
    library: dict[object, list[LibraryCall]]
    updates: list[tuple[int, int]]
    links: LinksBuilder | None


def times_of(event: Any, path: Path) -> tuple[int, int]:
    """Begin and duration in nanoseconds of an event with ``ts``, ``dur`` and ``cat``.

    Host events that were never closed have a negative duration, which counts as 0.

    Raises:
        FlintError: it has none, or one that no device can need.
    """
    begin, took = event.ts, event.dur
    try:
        if type(begin) is float and type(took) is float:
            start, duration = round(begin * 1000), round(took * 1000)
        else:
            start, duration = _nanoseconds(begin), _nanoseconds(took)
    except (TypeError, ValueError, OverflowError) as error:
        raise FlintError(f"{path}: an event without times: {_shown(event)}") from error
    if 0 <= start < LATEST and 0 <= duration < LATEST:
        return start, duration
    if str(event.cat) in DEVICE or not 0 <= start < LATEST or duration > 0:
        raise FlintError(f"{path}: an event with an invalid time: {_shown(event)}")
    return start, 0


def _nanoseconds(microseconds: Any) -> int:
    """Whole numbers stay exact: those of a clock since 1970 are beyond a float's 53 bits."""
    if type(microseconds) is int:
        return microseconds * 1000
    return round(float(microseconds) * 1000)


def _shown(event: Any) -> str:
    return msgspec.json.encode(event).decode(errors="replace")[:80]
