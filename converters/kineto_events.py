"""The events of a Kineto trace, as far as they are needed, column by column of the file.

The idea: one pass over the file keeps ops, kernels, calls of the runtime, steps and gloo's own
work; what ops say (shapes, types, groups) is kept once, because steps repeat themselves.

    events = read_events(JsonTrace.read(Path("rank0.json.gz")))
    events.said[events.ops[0].said]["Input Dims"]
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from flint.converters.json_traces import JsonTrace
from flint.converters.torch_ops import dtype_of
from flint.errors import FlintError
from flint.post_execution.links import LinksBuilder

#: Categories of libkineto's ActivityType.cpp, and those of older versions.
_OPS = frozenset({"cpu_op", "operator"})
_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_RUNTIME = frozenset(
    {
        "cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "hip_driver", "xpu_runtime",
        "xpu_driver", "privateuse1_runtime", "privateuse1_driver",
    }
)  # fmt: skip
#: Those whose events may be steps.
_MARKS = _OPS | {"user_annotation"}
_PLAIN = (int, str, float, type(None))
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
    """A kernel or a copy on a device: nanoseconds, stream, and what names its op."""

    start: int
    duration: int
    stream: object
    name: str
    external: object
    correlation: object


class GloosWork(NamedTuple):
    """Gloo's own work: when, and on what."""

    start: int
    end: int
    dtype: str
    elements: int


class Events(NamedTuple):
    """What is kept.

    Attributes:
        ops, kernels: in the order of the file.
        runtime: correlation -> thread and nanosecond of the call that launches.
        steps: begin, end and name, in order.
        gloo: number of the record and the work, in order.
        said: arguments of ops.
        links: what ties them to each other, where that is asked for.
    """

    ops: list[Op]
    kernels: list[Kernel]
    runtime: dict[object, tuple[object, int]]
    steps: list[tuple[int, int, str]]
    gloo: list[tuple[int, GloosWork]]
    said: list[dict[str, Any]]
    links: LinksBuilder | None


#: What is kept of an op's arguments; most ops say what others have said.
_KEPT = frozenset(
    {
        "Input Dims", "Input type", "Concrete Inputs", "Collective name", "dtype", "In msg nelems",
        "Group size", "Process Group Ranks", "Process Group Name", "Global rank start",
        "Global rank stride", "Src Rank", "Dst Rank",
    }
)  # fmt: skip


def read_events(trace: JsonTrace, links: LinksBuilder | None) -> Events:
    """The events of a file; all of it is read.

    Args:
        trace: the file.
        links: is told of every event that is no op and no kernel, if there is one.

    Raises:
        FlintError: it is cut off or damaged, or an event has no time.
    """
    found = Events([], [], {}, [], [], [], links)
    names: dict[str, str] = {}
    numbers: dict[str, int] = {}
    for event in trace.items("traceEvents"):
        if event.get("ph") != "X":
            continue
        category = str(event.get("cat", "")).lower()
        try:
            start = round(float(event["ts"]) * 1000)
            duration = max(0, round(float(event.get("dur", 0)) * 1000))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FlintError(f"{trace.path}: an event without times: {str(event)[:80]}") from error
        if not 0 <= start < LATEST or duration >= LATEST:
            raise FlintError(f"{trace.path}: an event with a time that is none: {str(event)[:80]}")
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        name = str(event.get("name", ""))
        name = names.setdefault(name, name)
        if links is not None and category not in _OPS and category not in _DEVICE:
            links.event(category, name, _hashable(event.get("tid")), start, duration, args)
        if category in _MARKS and name.startswith("ProfilerStep"):
            found.steps.append((start, start + duration, name))
        elif category in _OPS:
            kept = {key: value for key, value in args.items() if key in _KEPT}
            number = numbers.setdefault(repr(kept), len(found.said))
            if number == len(found.said):
                found.said.append(kept)
            record = args.get("Record function id")
            found.ops.append(
                Op(
                    start, duration, _hashable(event.get("tid")), name,
                    _hashable(args.get("External id", args.get("external id"))),
                    record if type(record) is int else -1, number,
                )
            )  # fmt: skip
        elif category in _DEVICE:
            found.kernels.append(
                Kernel(
                    start, duration, str(args.get("stream")), name,
                    _hashable(args.get("External id", args.get("external id"))),
                    _hashable(args.get("correlation")),
                )
            )  # fmt: skip
        elif category in _RUNTIME:
            found.runtime[_hashable(args.get("correlation"))] = _hashable(event.get("tid")), start
        elif category == "user_annotation" and name.startswith("gloo:"):
            record, types, dims = (
                args.get(key) for key in ("Record function id", "Input type", "Input Dims")
            )
            dtype = dtype_of(types[0]) if isinstance(types, list) and types else ""
            if type(record) is int:
                work = GloosWork(start, start + duration, dtype, _elements(dims))
                found.gloo.append((record, work))
    found.steps.sort()
    found.gloo.sort()
    return found


def _hashable(value: object) -> object:
    """Numbers and texts as they are, anything else that a damaged file has as its text."""
    return value if isinstance(value, _PLAIN) else str(value)


def _elements(dims: object) -> int:
    """Elements of all tensors of an annotation; -1 where it does not say."""
    shapes = dims if isinstance(dims, list) else []
    whole = [shape for shape in shapes if isinstance(shape, list)]
    if not whole or not all(type(size) is int for shape in whole for size in shape):
        return -1
    return sum(math.prod(shape) for shape in whole)
