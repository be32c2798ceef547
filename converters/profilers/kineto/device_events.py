"""Kineto traces -> device events as in the file (see ``flint.observed.device_events``).

device_events(Path("rank0.json.gz")).stream
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from flint.converters.profilers.json_traces import JsonTrace
from flint.converters.profilers.kineto.events import DEVICE, times_of
from flint.errors import FlintError
from flint.observed.device_events import UNKNOWN, DeviceEvents

_STEP: Final = "ProfilerStep"
_OP: Final = "cpu_op"
#: Synchronisation that HolisticTraceAnalysis counts to the device although it has no stream.
_WHOLE_DEVICE: Final = ("Event Sync", "Context Sync")


class _Event(msgspec.Struct, gc=False):
    cat: Any = None
    name: Any = ""
    ts: Any = None
    dur: Any = None
    pid: Any = None
    args: msgspec.Raw = msgspec.Raw(b"")


class _Arguments(msgspec.Struct, gc=False):
    stream: Any = None
    correlation: Any = None


def device_events(path: Path) -> DeviceEvents:
    """The device events of a Kineto JSON file, gzip allowed.

    None for a merged file of several processes, whose streams have the same numbers.

    Raises:
        FlintError: it is not such a file, or is cut off or damaged.
    """
    trace = JsonTrace.read(path)
    decode = msgspec.json.Decoder(_Arguments).decode
    names: dict[str, int] = {}
    rows: list[tuple[int, int, int, int, bool, int]] = []
    calls: dict[int, int] = {}
    marks: list[int] = []
    steps: set[str] = set()
    processes: set[str] = set()
    fractional = False
    for event in trace.records("traceEvents", _Event, "an event"):
        fractional |= isinstance(event.ts, float)
        if event.dur is None or event.cat is None or event.cat == "Trace":
            continue
        name = str(event.name)
        if event.cat == _OP:
            processes.add(str(event.pid))
        if _STEP in name:
            marks.append(times_of(event, path)[0])
            steps.add(name)
        text = bytes(event.args)
        if b"stream" not in text and b"correlation" not in text:
            continue
        arguments = _arguments(decode, text, path)
        stream, correlation = _number(arguments.stream), _number(arguments.correlation)
        start, duration = times_of(event, path)
        if stream != UNKNOWN:
            kernel = str(event.cat).lower() in DEVICE
            number = names.setdefault(name, len(names))
            rows.append((number, start, duration, stream, kernel, correlation))
        elif correlation != UNKNOWN and name not in _WHOLE_DEVICE:
            calls[correlation] = start
    if len(processes) > 1:
        rows.clear()
    columns = np.array([row[:4] for row in rows], np.int64).reshape(-1, 4)
    info = trace.rest("traceEvents").get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    return DeviceEvents(
        path=str(path),
        rank=rank if type(rank) is int else None,
        names=tuple(names),
        name=columns[:, 0],
        start=columns[:, 1],
        duration=columns[:, 2],
        stream=columns[:, 3],
        launched=np.array([calls.get(row[5], UNKNOWN) for row in rows], np.int64),
        kernel=np.array([row[4] for row in rows], np.bool_),
        correlated=np.array([row[5] != UNKNOWN for row in rows], np.bool_),
        marks=np.array(marks, np.int64),
        steps=len(steps),
        fractional=fractional,
    )


def _arguments(decode: Any, text: bytes, path: Path) -> _Arguments:
    try:
        return decode(text)  # type: ignore[no-any-return]  # msgspec's decoders are not generic
    except msgspec.MsgspecError:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FlintError(f"{path}: damaged arguments of an event ({error})") from error
        known = found if isinstance(found, dict) else {}
        return _Arguments(known.get("stream"), known.get("correlation"))


def _number(value: object) -> int:
    """A stream's or a call's number; ``UNKNOWN`` for other values, such as AMD's "0x0"."""
    try:
        number = int(value)  # type: ignore[call-overload]  # whatever the file has
    except (TypeError, ValueError, OverflowError):
        return UNKNOWN
    return number if 0 <= number < 1 << 62 else UNKNOWN
