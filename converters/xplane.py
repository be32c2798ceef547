"""Profile folders of JAX (xplane files) -> observed ops: which HLO ops every device has executed.

The idea: the events name HLO ops; shapes, groups and source lines stand in the HLO modules that the
profiler puts into the same file, in a plane that ``jax.profiler.ProfileData`` does not show, so
that its few fields are read here from the wire.  A fusion is opened: what it contracts counts.

    observe(Path("profile/")).rows(rank=3, step=0)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from flint.converters.hlo_facts import ModuleFacts, module_facts
from flint.converters.json_traces import read_bytes
from flint.errors import FlintError
from flint.validation.observed import Observed, ObservedRows, OpFacts

#: jax versions whose ``jax.profiler.ProfileData`` is known to work.
_KNOWN = "0.10"
#: Field numbers of tsl/profiler/protobuf/xplane.proto: XSpace.planes, XPlane.{name,
#: event_metadata}, a map entry's value, XEventMetadata.{name, stats}, XStat.bytes_value.
_PLANES, _NAME, _EVENT_METADATA, _VALUE, _STATS, _BYTES = 1, 2, 4, 2, 5, 6
_METADATA_PLANE = b"/host:metadata"
_DEVICE_PLANE = re.compile(r"/device:(GPU|TPU):(\d{1,7})")

#: Beyond this no number and no nanosecond is believed: sums stay within 64 bits.
_LATEST = 1 << 62


def observe(path: Path) -> Observed:
    """The HLO ops in a profile folder or in one ``.xplane.pb`` file.

    Raises:
        FlintError: no such file in the folder, several hosts' or several runs', a damaged one, or
            one without any HLO op.
    """
    profile = profile_of(path)
    rows, module = profile.rows, profile.module
    known: dict[tuple[str, int], tuple[OpFacts, ...]] = {}
    runs: dict[int, dict[int, int]] = {}
    for event in profile.events:
        rank, run, start, duration, name = event[:5]
        step = runs.setdefault(rank, {}).setdefault(run, len(runs[rank]))
        if (name, rank) not in known:
            known[name, rank] = module.of(name, rank)
        if not known[name, rank]:
            rows.note("ops that the HLO in the trace does not have")
        inside = known[name, rank]
        for place, facts in enumerate(inside):
            # A fusion of several products took its time for all of them together.
            share = duration * (place + 1) // len(inside) - duration * place // len(inside)
            rows.add(facts, rank=rank, step=step, start=start, duration=share, end=event.end)
    steps = max(map(len, runs.values()), default=0)
    if len({len(found) for found in runs.values()}) > 1:
        rows.note("the devices did not all run the same number of steps in the trace")
    return rows.finish(
        form="xplane",
        backend=profile.backend,
        world=module.devices,
        steps=tuple(f"run {number}" for number in range(steps)),
    )


class Profile(NamedTuple):
    """The program that a profile is about, and what ran of it.

    Attributes:
        rows: for the notes, and for rows to come.
        proto: its serialised HLO.
        module: the same, by name.
        events: one per op that ran, in order, kernels of an op joined.
        backend: "cpu", "gpu" or "tpu".
    """

    rows: ObservedRows
    proto: bytes
    module: ModuleFacts
    events: list[Event]
    backend: str


def profile_of(path: Path) -> Profile:
    """What a profile folder or file says of its program (raises as ``observe``)."""
    file = _file(path)
    data = read_bytes(file)
    protos = _modules(file, data)
    rows = ObservedRows(str(path))
    events = sorted(_events(file, data, rows))
    if not events:
        raise FlintError(
            f"{file}: no HLO ops in it: trace with jax.profiler.trace around the compiled step"
        )
    program, proto = _chosen(file, events, protos)
    module = module_facts(proto, str(file))
    others = Counter(event.program for event in events if event.program != program)
    for other, count in others.items():
        rows.note(f"ops of another program that ran as well, {other.rpartition('(')[0]}", count)
    backend = "/".join(sorted({event.backend for event in events}))
    mine = [event for event in events if event.program == program]
    return Profile(rows, proto, module, _joined(_numbered(mine, module)), backend)


def _file(path: Path) -> Path:
    if path.is_file():
        return path
    files = sorted(path.glob("**/*.xplane.pb"))
    if not files:
        raise FlintError(f"{path}: no .xplane.pb file in the folder")
    if len(files) > 1:
        raise FlintError(
            f"{path}: {len(files)} .xplane.pb files in it (several runs or hosts); give one of "
            f"them, for example {files[-1]}"
        )
    return files[0]


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


def _numbered(events: list[Event], module: ModuleFacts) -> list[Event]:
    """Events with the number of their run, for backends that tell none.

    What stands in the module's entry runs once per run, so that each time that the first of these
    ops begins on a device, a run begins.
    """
    if any(event.run >= 0 for event in events):
        return events
    found: list[Event] = []
    for _, group in groupby(events, key=lambda event: event.device):
        mine = list(group)
        first = next((event.hlo for event in mine if event.hlo in module.entry), None)
        run = -1
        seen: set[str] = set()
        for event in mine:
            if event.hlo == first:
                if run < 0 or event.kernel in seen:
                    run += 1
                    seen = set()
                seen.add(event.kernel)
            found.append(event._replace(run=max(run, 0)))
    return found


def _joined(events: list[Event]) -> list[Event]:
    """One event per op that ran: kernels of an op that follow each other are joined.

    An op of a loop runs again when a kernel of it comes a second time.
    """
    found: list[Event] = []
    last: dict[tuple[int, str], tuple[int, set[str]]] = {}
    for event in events:
        key = event.device, event.hlo
        place, kernels = last.get(key, (-1, set()))
        together = place >= 0 and event.kernel and event.kernel not in kernels
        if together and found[place].run == event.run:
            whole = found[place]
            found[place] = whole._replace(
                duration=whole.duration + event.duration, end=max(whole.end, event.end)
            )
            kernels.add(event.kernel)
        else:
            last[key] = len(found), {event.kernel}
            found.append(event)
    return found


def _chosen(file: Path, events: list[Event], protos: dict[str, bytes]) -> tuple[str, bytes]:
    """The program that the trace is about: the one with the most time among those with HLO."""
    spent: dict[str, int] = {}
    for event in events:
        spent[event.program] = spent.get(event.program, 0) + event.duration
    for program in sorted(spent, key=lambda item: -spent[item]):
        # Programs of one name are told apart by their number; some backends leave it out.
        name = program.rpartition("(")[0]
        named = [label for label in protos if label.rpartition("(")[0] == name]
        label = program if program in protos else named[0] if len(named) == 1 else None
        if label is not None:
            return program, protos[label]
    raise FlintError(
        f"{file}: the HLO of {', '.join(sorted(spent)[:4])} is not in the trace, so that its ops "
        "have no shapes; trace with the profiler's option enable_hlo_proto (the default)"
    )


def _events(file: Path, data: bytes, rows: ObservedRows) -> Iterator[Event]:
    """What ran, in the order of the file."""
    try:
        from jax.profiler import ProfileData
    except ImportError as error:
        raise FlintError(
            f"jax.profiler.ProfileData, which reads {file.name}, is missing in this jax; known to "
            f"work: {_KNOWN}"
        ) from error
    try:
        planes = list(ProfileData.from_serialized_xspace(data).planes)
    except Exception as error:  # whatever the extension raises on bytes that are none
        raise FlintError(f"{file}: no xplane file ({str(error)[:80]})") from error
    for plane in planes:
        device = _DEVICE_PLANE.search(plane.name)
        lines = list(plane.lines)
        if device is not None:
            # A GPU has its kernels by stream; "XLA Ops" is then a summary of the same.
            streams = [line for line in lines if line.name.startswith("Stream")]
            lines = streams or [line for line in lines if line.name.startswith("XLA Ops")]
        for line in lines:
            for event in line.events:
                if event.name.startswith("end:"):  # the twin that closes a pair
                    continue
                stats = dict(event.stats)
                name = stats.get("hlo_op")
                if not name:
                    if device is not None:
                        rows.note("events of a device that name no HLO op (copies, CUDA graphs)")
                    continue
                ordinal = int(device[2]) if device else _number(stats.get("device_ordinal"))
                if ordinal < 0:
                    continue
                start, duration = int(event.start_ns), max(0, int(event.duration_ns))
                if not 0 <= start < _LATEST or duration >= _LATEST:
                    raise FlintError(f"{file}: {str(name)[:80]} ran at a time that is none")
                yield Event(
                    ordinal, _key(stats.get("run_id")), start, duration, str(name),
                    f"{stats.get('hlo_module', '')}({stats.get('program_id', '')})",
                    device[1].lower() if device else "cpu",
                    event.name if device and line.name.startswith("Stream") else "",
                    start + duration,
                )  # fmt: skip


def _key(value: object) -> int:
    """A stat that tells one from another, any number; -1 where it is none."""
    return value % (1 << 64) if isinstance(value, int) else -1


def _number(value: object) -> int:
    """A stat that is a number; -1 where it is none."""
    return value if isinstance(value, int) and 0 <= value < _LATEST else -1


def _modules(file: Path, data: bytes) -> dict[str, bytes]:
    """``jit_step(3)``, a module's name and its program's number -> serialised HLO."""
    modules: dict[str, bytes] = {}
    try:
        for number, plane in _fields(data):
            if number != _PLANES or not isinstance(plane, bytes):
                continue
            fields = [(n, value) for n, value in _fields(plane) if isinstance(value, bytes)]
            if (_NAME, _METADATA_PLANE) not in fields:
                continue
            for found, entry in fields:
                for _, metadata in _of(entry, _VALUE) if found == _EVENT_METADATA else ():
                    for name in (value for _, value in _of(metadata, _NAME)):
                        for proto in _protos(metadata):
                            modules[name.decode(errors="replace")] = proto
    except (ValueError, IndexError) as error:
        raise FlintError(f"{file}: damaged or cut off ({error})") from error
    return modules


def _protos(metadata: bytes) -> Iterator[bytes]:
    for _, stat in _of(metadata, _STATS):
        for _, proto in _of(stat, _BYTES):
            yield proto


def _of(message: bytes, field: int) -> Iterator[tuple[int, bytes]]:
    for number, value in _fields(message):
        if number == field and isinstance(value, bytes):
            yield number, value


def _fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Fields of a protobuf message: bytes of length-delimited ones, numbers of varints.

    Raises:
        ValueError: it is cut off or is no message.
    """
    view, at = memoryview(data), 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(kind, -1)
        if size < 0 or at + size > len(data):
            raise ValueError(f"no field at byte {at}")
        yield tag >> 3, bytes(view[at : at + size])
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise ValueError("cut off")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError(f"no number at byte {at}")
