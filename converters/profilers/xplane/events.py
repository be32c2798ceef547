"""What ran by an xplane file: one event per kernel, or per op where the backend has none below.

The idea: GPUs and hosts name the HLO op, the module and the run with each event.  A TPU has a line
for the runs of programs, and one for ops, on which the instruction stands as HLO's text.  jax's
reader is native code, so it runs in a process of its own.

    ran = events_of(Path("host.xplane.pb"), rows)
    ran.events[0].hlo, ran.events[0].program        # "fusion.3", "jit_step(7)"
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from flint.converters.profilers.xplane.annotated import Marked
from flint.converters.profilers.xplane.xplane_pb2 import XPlane, XPlaneName, XSpace
from flint.errors import FlintError, NoProgramError
from flint.host.packed_files import read_bytes
from flint.host.reading_apart import apart
from flint.observed.rows import ObservedRows

try:  # before any reading, whose memory is bounded
    from jax.profiler import ProfileData
except ImportError:
    ProfileData = None

#: jax versions whose ``jax.profiler.ProfileData`` is known to work.
_KNOWN = "0.8.3 to 0.12.0.1"
NO_OPS = "no HLO ops in it: trace with jax.profiler.trace around the compiled step"
_METADATA_PLANE = b"/host:metadata"
DEVICE_PLANE = re.compile(r"/device:(GPU|TPU):(\d{1,7})")

#: What stands for an op on a TPU: its instruction as HLO's text.
_HLO_TEXT = re.compile(r"%([\w.-]{1,400}) = ")
_MODULES, _OPS = "XLA Modules", "XLA Ops"
#: What describes a GPU, and the most characters of a device's name.
_DESCRIBED, _LONGEST_NAME = ("device_vendor", "core_count", "memory_size"), 80
#: What stands for other bytes in what was saved as text (U+FFFD), and how many bytes are looked at.
_AS_TEXT, _HEAD = "\N{REPLACEMENT CHARACTER}".encode(), 64
#: More bytes than a file may have.
_MAX_BYTES = 4 << 30
#: Beyond this no number and no nanosecond is believed: sums stay within 64 bits.
_LATEST = 1 << 62


class Event(NamedTuple):
    """A kernel, or an op where the backend has none below; nanoseconds."""

    device: int
    run: int  # -1 where the backend does not say
    start: int
    duration: int
    hlo: str
    program: str  # module(number)
    backend: str
    kernel: str
    end: int
    stream: int  # number of the device's stream; 0 on hosts
    launch: int  # when the host launched it; -1 if not recorded


class Ran(NamedTuple):
    """What a file has.

    Attributes:
        data: its content.
        events: what ran by it, in order.
        device: the name of its first device; "" if not recorded.
        marked: the steps that its host has annotated.
        version: of the JAX that ran; "" if not recorded.
    """

    data: bytes
    events: list[Event]
    device: str
    marked: Marked = Marked([], [])
    version: str = ""


def events_of(file: Path, rows: ObservedRows) -> Ran:
    """What ran by a file.

    Raises:
        FlintError: it is damaged, or nothing ran.
    """
    data = _data_of(file)
    events, notes, device, marked, version = _decode(apart(lambda: _events_in(file, data), file))
    for text, count in notes.items():
        rows.note(text, count)
    if not events:
        raise NoProgramError(f"{file}: {NO_OPS}")
    return Ran(data, events, device, marked, version)


def _data_of(file: Path) -> bytes:
    if ProfileData is None:
        raise FlintError(
            f"jax.profiler.ProfileData, which reads {file.name}, is missing in this jax; known to "
            f"work: {_KNOWN}"
        )
    data = read_bytes(file, _MAX_BYTES)
    if not data:
        raise FlintError(f"{file}: the file is empty: the profiler ended before it wrote anything")
    return data


_decode = msgspec.msgpack.Decoder(tuple[list[Event], dict[str, int], str, Marked, str]).decode


def _events_in(file: Path, data: bytes) -> bytes:
    """What ran, in order, and what should be said of it, for ``_decode``."""
    rows = ObservedRows(str(file))
    planes = _planes(file, data)
    launched: dict[int, int] = {}
    marked = Marked([], [])
    found = list(_events(file, planes, rows, launched, marked))
    events = sorted(one._replace(launch=launched.get(one.launch, -1)) for one in found)
    devices = (described(dict(p.stats)) for p in planes if DEVICE_PLANE.search(p.name))
    device = next(filter(None, devices), "")
    return msgspec.msgpack.encode((events, rows.notes, device, marked, _version(planes)))


def _version(planes: list[Any]) -> str:
    stats = (dict(plane.stats) for plane in planes if plane.name == "/host:metadata")
    return next((str(found["jax_version"]) for found in stats if "jax_version" in found), "")


def planes_of(file: Path) -> list[Any]:
    """The planes of a file, for reading in a process of its own.

    Raises:
        FlintError: it is damaged.
    """
    return _planes(file, _data_of(file))


def _planes(file: Path, data: bytes) -> list[Any]:
    try:
        return list(ProfileData.from_serialized_xspace(data).planes)
    except MemoryError:
        raise
    except Exception as error:  # whatever the extension raises on bytes that are none
        if _AS_TEXT in data[:_HEAD]:
            raise FlintError(
                f"{file}: the file is damaged: it was once saved as text; copy the profiler's own "
                "file, byte for byte"
            ) from error
        raise FlintError(f"{file}: not an xplane file ({str(error)[:80]})") from error


def described(stats: dict[str, Any]) -> str:
    """A device's name; for a GPU, which has none, what describes it; "" without either."""
    name = stats.get("device_type_string")
    if isinstance(name, str):
        return name[:_LONGEST_NAME]
    vendor, cores, memory = (stats.get(n) for n in _DESCRIBED)
    if not (isinstance(vendor, str) and isinstance(cores, int) and isinstance(memory, int)):
        return ""
    return f"{vendor[:_LONGEST_NAME]} GPU, {cores} cores, {memory / 1e9:.0f} GB"


def _events(
    file: Path,
    planes: list[Any],
    rows: ObservedRows,
    launched: dict[int, int],
    marked: Marked,
) -> Iterator[Event]:
    """What ran, in the order of the file; for now, an event's launch is the number of its call.

    Args:
        file, planes, rows: the file, its planes, and where notes go.
        launched: when the host made each call, by its number; added here.
        marked: annotated steps; added here.
    """
    for plane in planes:
        device = DEVICE_PLANE.search(plane.name)
        lines = list(plane.lines)
        modules: list[_Module] = []
        if device is not None:
            modules = _modules(lines)
            # A GPU has its kernels by stream; "XLA Ops" is then a summary of the same.
            streams = [line for line in lines if line.name.startswith("Stream")]
            lines = streams or [line for line in lines if line.name.startswith(_OPS)]
        for number, line in enumerate(lines):
            for event in line.events:
                if event.name.startswith("end:"):  # the twin that closes a pair
                    continue
                stats = dict(event.stats)
                call = number_of(stats.get("correlation_id"))
                if device is None and call >= 0:
                    launched[call] = max(0, int(event.start_ns))
                name, written = (
                    stats.get("hlo_op"),
                    _HLO_TEXT.match(event.name) if modules else None,
                )
                if not name and written is not None:
                    stats |= _around(modules, int(event.start_ns))
                    name = written[1] if "run_id" in stats else None
                if not name:
                    if device is None:
                        marked.take(event, stats)
                    else:
                        rows.note("events of a device that name no HLO op (copies, CUDA graphs)")
                    continue
                ordinal = int(device[2]) if device else number_of(stats.get("device_ordinal"))
                if ordinal < 0:
                    continue
                start, duration = span_of(file, event)
                yield Event(
                    ordinal, _key(stats.get("run_id")), start, duration, str(name),
                    f"{stats.get('hlo_module', '')}({stats.get('program_id', '')})",
                    device[1].lower() if device else "cpu",
                    event.name if device and line.name.startswith("Stream") else "",
                    start + duration,
                    number if device else 0, call,
                )  # fmt: skip


def span_of(file: Path, event: Any) -> tuple[int, int]:
    """Start and duration of an event, nanoseconds.

    Raises:
        FlintError: they are impossible.
    """
    start, duration = int(event.start_ns), max(0, int(event.duration_ns))
    if not 0 <= start < _LATEST or duration >= _LATEST:
        raise FlintError(f"{file}: {str(event.name)[:80]} has an invalid time")
    return start, duration


class _Module(NamedTuple):
    """A run of a program on a TPU; nanoseconds."""

    start: int
    end: int
    label: str
    run: int


def _modules(lines: list[Any]) -> list[_Module]:
    """The runs of programs on a device, in order; they may not say their number."""
    found = [
        (int(event.start_ns), int(event.start_ns + event.duration_ns), str(event.name), event)
        for line in lines
        if line.name == _MODULES
        for event in line.events
    ]
    found.sort(key=lambda item: item[:3])
    return [
        _Module(start, end, label, _key(dict(event.stats).get("run_id", number)))
        for number, (start, end, label, event) in enumerate(found)
    ]


def _around(modules: list[_Module], when: int) -> dict[str, Any]:
    """What the run of a program around a moment says of its ops; {} where there is none."""
    place = bisect_right(modules, when, key=lambda module: module.start) - 1
    if place < 0 or modules[place].end < when:
        return {}
    name, _, number = modules[place].label.rpartition("(")
    return {
        "hlo_module": name or number, "program_id": number.rstrip(")"),
        "run_id": modules[place].run,
    }  # fmt: skip


def _key(value: object) -> int:
    """A stat that tells one from another, any number; -1 where it is none."""
    return value % (1 << 64) if isinstance(value, int) else -1


def number_of(value: object) -> int:
    """A stat that is a number; -1 where it is none."""
    return value if isinstance(value, int) and 0 <= value < _LATEST else -1


def modules_of(file: Path, data: bytes) -> dict[str, bytes]:
    """``jit_step(3)``, a module's name and its program's number -> serialised HLO."""
    try:
        return {
            metadata.name.decode(errors="replace"): stat.bytes_value
            for plane in XSpace.FromString(data).planes
            if XPlaneName.FromString(plane).name == _METADATA_PLANE
            for metadata in XPlane.FromString(plane).event_metadata.values()
            for stat in metadata.stats
            if stat.bytes_value
        }
    except DecodeError as error:
        raise FlintError(f"{file}: damaged or cut off ({error})") from error
