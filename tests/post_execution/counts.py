"""The contents of a Kineto file about its devices, counted without any of Flint's readers."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import NamedTuple

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "mtia_ccp_events")


def events_of(path, key="traceEvents"):
    """The events of a file, packed or not; none of other JSON.  Execution traces have nodes."""
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    return document.get(key, ()) if isinstance(document, dict) else document


class Count(NamedTuple):
    """What some device events show.

    Attributes:
        events: how many.
        span, busy, total: microseconds from the first begin to the last end, of these those in
            which something ran, and of all events together.
        times: (begin, end, stream) of each, nanoseconds from the first begin, ascending.
    """

    events: int
    span: float
    busy: float
    total: float
    times: list[tuple[int, int, tuple[int, int]]]

    def by_stream(self, times=None):
        """Nanoseconds of each stream; ``times``: (begin, end) of the same events elsewhere."""
        found = defaultdict(int)
        for (low, high), event in zip(
            times or [t[:2] for t in self.times], self.times, strict=True
        ):
            found[event[2]] += high - low
        return dict(found)


def device_events(events):
    """Those that ran on a device."""
    return [e for e in events if e.get("ph") == "X" and str(e.get("cat", "")).lower() in DEVICE]


def count(device):
    """The count of some device events."""
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in device)
    busy, reached = 0.0, spans[0][0]
    for low, high in spans:
        busy += max(0.0, high - max(low, reached))
        reached = max(reached, high)
    first = spans[0][0]
    times = sorted(
        (
            round((e["ts"] - first) * 1000),
            round((e["ts"] + e["dur"] - first) * 1000),
            (e.get("pid"), e.get("tid")),
        )
        for e in device
    )
    total = sum(high - low for low, high in spans)
    return Count(len(spans), reached - first, busy, total, times)


def counted(path):
    """The count of the last step with device events; None without such events.

    An event is of the step in which its op began, or, without an op, the call that launched it.
    A stream runs what it is given in order: where steps are marked, events before the first one
    whose op or call the file has were launched before the profile, and are of no step.
    """
    events = [e for e in events_of(path) if e.get("ph") == "X"]
    calls, ops = {}, {}
    for event in events:
        category, args = str(event.get("cat", "")).lower(), event.get("args", {})
        if category.endswith(("runtime", "driver")):
            calls[args.get("correlation")] = event["ts"]
        elif category in ("cpu_op", "operator"):
            ops[args.get("External id", args.get("external id"))] = event["ts"]
    marks = [e for e in events if e["name"].startswith("ProfilerStep")]
    steps = sorted(
        (e["ts"], e["ts"] + e["dur"]) for e in marks if "gpu" not in str(e.get("cat", "")).lower()
    )
    by_step = defaultdict(list)
    launches, known = [], {}  # per stream, when the first event with a call or an op began
    for event in device_events(events):
        args = event.get("args", {})
        launch = ops.get(args.get("External id", args.get("external id")))
        launch = calls.get(args.get("correlation")) if launch is None else launch
        launches.append((event, launch))
        if launch is not None:
            stream = event.get("pid"), event.get("tid")
            known[stream] = min(known.get(stream, event["ts"]), event["ts"])
    for event, launch in launches:
        stream = event.get("pid"), event.get("tid")
        if launch is None and steps and event["ts"] < known.get(stream, event["ts"]):
            continue
        launch = event["ts"] if launch is None else launch
        inside = [i for i, (low, high) in enumerate(steps) if low <= launch < high]
        by_step[inside[0] if inside else -1 if steps else 0].append(event)
    by_step.pop(-1, None)
    return count(by_step[max(by_step)]) if by_step else None
