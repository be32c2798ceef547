"""Profile folders of JAX (xplane files) -> observed ops: which HLO ops every device has executed.

The idea: the events name HLO ops; shapes, groups and source lines stand in the HLO modules that the
profiler puts into the same file, in a plane that ``jax.profiler.ProfileData`` does not show, so
that its few fields are read here from the wire.  A fusion is opened: what it contracts counts.

    observe(Path("profile/")).rows(rank=3, step=0)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
_DEVICE_PLANE = re.compile(r"/device:(GPU|TPU):(\d+)")


def observe(path: Path) -> Observed:
    """The HLO ops in a profile folder or in one ``.xplane.pb`` file.

    Raises:
        FlintError: no such file in the folder, several hosts' or several runs', a damaged one, or
            one without any HLO op.
    """
    file = _file(path)
    data = read_bytes(file)
    protos = _modules(file, data)
    rows = ObservedRows(str(path))
    events = sorted(_events(file, data))
    if not events:
        raise FlintError(
            f"{file}: no HLO ops in it: trace with jax.profiler.trace around the compiled step"
        )
    program, module = _chosen(file, events, protos)
    known: dict[tuple[str, int], tuple[OpFacts, ...]] = {}
    runs: dict[int, dict[int, int]] = {}
    backends = {event[6] for event in events}
    for rank, run, start, duration, name, of, _ in events:
        if of != program:
            rows.note(f"ops of another program that ran as well, {of.rpartition('(')[0]}")
            continue
        step = runs.setdefault(rank, {}).setdefault(run, len(runs[rank]))
        if (name, rank) not in known:
            known[name, rank] = module.of(name, rank)
        if not known[name, rank]:
            rows.note("ops that the HLO in the trace does not have")
        inside = known[name, rank]
        for place, facts in enumerate(inside):
            # A fusion of several products took its time for all of them together.
            share = duration * (place + 1) // len(inside) - duration * place // len(inside)
            rows.add(facts, rank=rank, step=step, start=start, duration=share, end=start + duration)
    steps = max(map(len, runs.values()), default=0)
    if len({len(found) for found in runs.values()}) > 1:
        rows.note("the devices did not all run the same number of steps in the trace")
    return rows.finish(
        form="xplane",
        backend="/".join(sorted(backends)),
        world=module.devices,
        steps=tuple(f"run {number}" for number in range(steps)),
    )


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


def _chosen(file: Path, events: list[Any], protos: dict[str, bytes]) -> tuple[str, ModuleFacts]:
    """The program that the trace is about: the one with the most time among those with HLO."""
    spent: dict[str, int] = {}
    for event in events:
        spent[event[5]] = spent.get(event[5], 0) + event[3]
    for program in sorted(spent, key=lambda item: -spent[item]):
        # Programs of one name are told apart by their number; some backends leave it out.
        name = program.rpartition("(")[0]
        named = [label for label in protos if label.rpartition("(")[0] == name]
        label = program if program in protos else named[0] if len(named) == 1 else None
        if label is not None:
            return program, module_facts(protos[label], str(file))
    raise FlintError(
        f"{file}: the HLO of {', '.join(sorted(spent)[:4])} is not in the trace, so that its ops "
        "have no shapes; trace with the profiler's option enable_hlo_proto (the default)"
    )


def _events(file: Path, data: bytes) -> Iterator[tuple[int, int, int, int, str, str, str]]:
    """(device, run, start, duration, HLO op, module(program), backend), nanoseconds."""
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
        for line in plane.lines:
            if device is not None and not line.name.startswith(("XLA Ops", "Stream")):
                continue
            for event in line.events:
                if event.name.startswith("end:"):  # the twin that closes a pair
                    continue
                stats = dict(event.stats)
                name = stats.get("hlo_op")
                if not name:
                    continue
                ordinal = int(device[2]) if device else int(stats.get("device_ordinal", -1))
                if ordinal < 0:
                    continue
                yield (
                    ordinal, int(stats.get("run_id", 0)), int(event.start_ns),
                    int(event.duration_ns), str(name),
                    f"{stats.get('hlo_module', '')}({stats.get('program_id', '')})",
                    device[1].lower() if device else "cpu",
                )  # fmt: skip


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
