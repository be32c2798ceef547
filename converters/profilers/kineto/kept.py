"""Events that are neither ops nor kernels, kept with the process that they belong to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from flint.converters.profilers.kineto.events import Events, GloosWork, LibraryCall, Table
from flint.converters.profilers.repeats import UPDATE
from flint.converters.profilers.torch_ops import dtype_of
from flint.post_execution.host_device_links import CALLS

_PLAIN = (int, str, float, type(None))
_USUAL = frozenset(_PLAIN)
#: Larger than any copy.
_LARGEST = 1 << 48
STEP = "ProfilerStep"
PYTHON = "python_function"
ANNOTATION = "user_annotation"
#: Annotations of PyTorch's process groups: NCCL's, also if the library is RCCL, and gloo's.
NCCL, GLOO = "nccl:", "gloo:"


class Other(NamedTuple):
    """Neither op nor kernel: its process may be known only at the end of the file."""

    category: str
    name: str
    thread: object
    start: int
    duration: int
    args: dict[str, Any]


class Call(NamedTuple):
    """A call of a runtime or driver."""

    name: str
    thread: object
    start: int
    duration: int
    correlation: object


class Mine(NamedTuple):
    """What is kept for a process.

    Attributes:
        events: ops, kernels and steps; the rest follows from ``calls`` and ``others`` at the end.
        tracks: the process that each of its kernels names.
        calls: its calls of runtimes and drivers.
        others: the rest of its events.
    """

    events: Events
    tracks: list[object]
    calls: Table[Call]
    others: Table[Other]


def add(found: Events, event: Other) -> None:
    """Steps, calls, synchronisation, Python calls, with the process that they belong to."""
    category, name, thread, start, duration, args = event
    if category.endswith(CALLS):
        add_calls(found, (name,), (thread,), (start,), (duration,), (args.get("correlation"),))
        return
    if found.links is not None and category == PYTHON:
        found.links.frame(name, thread, start, duration)
    elif found.links is not None:
        found.links.event(category, name, thread, start, duration, args)
    if category == ANNOTATION and name.startswith(STEP):
        found.steps.append((start, start + duration, name))
    elif category == ANNOTATION and name.startswith(UPDATE):
        found.updates.append((start, start + duration, name))
    elif category == ANNOTATION and name.startswith((NCCL, GLOO)):
        dims, types = args.get("Input Dims"), args.get("Input type")
        call = LibraryCall(start, start + duration, name.partition(":")[2], dims, types)
        if name.startswith(GLOO):
            _add_gloo(found, thread, call, args.get("Record function id"))
        else:
            found.library.setdefault(thread, []).append(call)


def add_calls(
    found: Events,
    names: Sequence[str],
    threads: Sequence[object],
    starts: Sequence[int],
    durations: Sequence[int],
    correlations: Sequence[object],
) -> None:
    """Calls of a runtime or driver by the process that they belong to."""
    moments = zip(threads, starts, strict=True)
    found.runtime.update(zip(hashables(correlations), moments, strict=True))
    if found.links is not None:
        found.links.calls(names, threads, starts, durations, correlations)


def _add_gloo(found: Events, thread: object, call: LibraryCall, record: object) -> None:
    """Gloo's own work, and the number of its record, 0 if it has none."""
    types = call.types
    dtype = dtype_of(types[0]) if isinstance(types, list) and types else ""
    work = GloosWork(call.start, call.end, dtype, _elements(call.dims), thread, call)
    found.gloo.append((record if type(record) is int else 0, work))


def hashable(value: object) -> object:
    """Numbers and texts unchanged; anything else from a damaged file as text."""
    if type(value) is int:
        return value
    return value if isinstance(value, _PLAIN) else str(value)


def hashables(values: Sequence[object]) -> Sequence[object]:
    """The same for many values."""
    return values if _USUAL.issuperset(map(type, values)) else list(map(hashable, values))


def moved_bytes(value: object) -> int:
    """Bytes of a copy; -1 if not recorded."""
    return value if type(value) is int and 0 <= value < _LARGEST else -1


def _elements(dims: object) -> int:
    """Elements of all tensors of an annotation; -1 if not recorded."""
    shapes = dims if isinstance(dims, list) else []
    whole = [shape for shape in shapes if isinstance(shape, list)]
    if not whole or not all(type(size) is int for shape in whole for size in shape):
        return -1
    return sum(math.prod(shape) for shape in whole)
