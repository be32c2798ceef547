"""Profiles of GPUs without HLO, as TensorFlow writes them -> observed ops: what each device ran.

The idea: without a program to place events in, kernels, copies and the calls that launched them are
read as in any other profile, each device as a rank.  TensorFlow's executor names its ops on the
host's threads ("dense/MatMul:MatMul"), and numbers the events of a step alike (``group_id``).

    for observed, links in linked([Path("host.xplane.pb")]):
        observed.ranks
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from flint.converters.profilers.kineto.events import Events, Kernel, Op
from flint.converters.profilers.kineto.facts import Groups
from flint.converters.profilers.kineto.kept import moved_bytes
from flint.converters.profilers.kineto.marks import mark
from flint.converters.profilers.kineto.rows import add_ops, stand_in
from flint.converters.profilers.xplane.events import (
    DEVICE_PLANE,
    NO_OPS,
    described,
    number_of,
    planes_of,
    span_of,
)
from flint.converters.profilers.xplane.profile import profile_files
from flint.errors import FlintError
from flint.host.reading_apart import apart
from flint.observed.columns import Hints, Observed
from flint.observed.rows import ObservedRows
from flint.post_execution.host_device_links import LinksBuilder
from flint.post_execution.links import Links

#: An op of TensorFlow's: its name and its type.
_OP = re.compile(r"[^:]{1,400}:(\w{1,100})")
#: What a copy moves, in its details.
_SIZE = re.compile(r"\bsize:(\d{1,15})\b")
_HINTS = Hints("trace a program that XLA compiles, whose profile has its HLO")
OF_DEVICES = "devices of a profile without HLO: each is taken as one rank, in the order of files"

IDLE = "devices on which nothing ran in any step: they are left out"


class _Kernel(NamedTuple):
    start: int
    duration: int
    stream: int
    name: str
    call: int
    bytes: int
    step: int  # the number that events of a step share; -1 outside of steps


class _Call(NamedTuple):
    start: int
    duration: int
    thread: int
    name: str
    number: int


class _Ran(NamedTuple):
    """What a file has, nanoseconds.

    Attributes:
        kernels: by device.
        calls: those that launched something; several devices share the host.
        ops: of TensorFlow's on the host; their numbers are -1.
        device: the name of a device, or what describes it.
    """

    kernels: dict[int, list[_Kernel]]
    calls: list[_Call]
    ops: list[_Call]
    device: str


def linked(
    paths: Sequence[Path], stated: Mapping[str, tuple[int, ...]] | None = None
) -> Iterator[tuple[Observed, Links]]:
    """The devices of a profile, each a rank, with the links in each.

    Args:
        paths: the profile: a folder, or a file.
        stated: unused: no kernel names its group.

    Raises:
        FlintError: it is damaged, or nothing ran on a device.
    """
    files = [file for path in paths for file in profile_files(path)]
    ran = [_decode(apart(partial(_encoded, file), file)) for file in files]
    devices = [
        (file, found, device)
        for file, found in zip(files, ran, strict=True)
        for device in sorted(found.kernels)
    ]
    if not devices:
        raise FlintError(f"{files[0]}: {NO_OPS}")
    working = [item for item in devices if _steps(item[1], item[2])] or devices
    for rank, (file, found, device) in enumerate(working):
        observed, links = _read(file, found, device, rank, len(working))
        if rank == 0 and len(working) < len(devices):
            notes = {**observed.notes, IDLE: len(devices) - len(working)}
            observed = replace(observed, notes=notes)
        yield observed, links


_decode = msgspec.msgpack.Decoder(_Ran).decode


def _encoded(file: Path) -> bytes:
    """What a file has, for ``_decode``."""
    kernels: dict[int, list[_Kernel]] = {}
    calls: list[_Call] = []
    ops: list[_Call] = []
    device = ""
    for plane in planes_of(file):
        on = DEVICE_PLANE.search(plane.name)
        if on is not None:
            device = device or described(dict(plane.stats))
        for number, line in enumerate(plane.lines):
            if on is not None and not line.name.startswith("Stream"):
                continue  # a summary of the same
            for event in line.events:
                stats = dict(event.stats)
                span, call = span_of(file, event), number_of(stats.get("correlation_id"))
                if on is not None:
                    size = _SIZE.search(str(stats.get("memcpy_details", "")))
                    moved = moved_bytes(int(size[1]) if size else None)
                    step = number_of(stats.get("group_id"))
                    one = _Kernel(*span, number, event.name, call, moved, step)
                    kernels.setdefault(int(on[2]), []).append(one)
                    continue
                op = _OP.fullmatch(event.name)
                if call >= 0:
                    calls.append(_Call(*span, number, event.name, call))
                elif op is not None:
                    ops.append(_Call(*span, number, op[1], -1))
    return msgspec.msgpack.encode(_Ran(kernels, calls, ops, device))


def _steps(ran: _Ran, device: int) -> list[tuple[int, int]]:
    """Begin and end of the steps in which a device was launched something, on the host, in order.

    A step begins with the first op that launches something of it, and ends at the latest where the
    next one begins.
    """
    step_of = {kernel.call: kernel.step for kernel in ran.kernels[device] if kernel.step >= 0}
    calls = sorted(call for call in ran.calls if call.number in step_of)
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for call in calls:
        step = step_of[call.number]
        if step not in begins:
            around = [
                op.start
                for op in ran.ops
                if op.thread == call.thread and 0 <= call.start - op.start <= op.duration
            ]
            begins[step] = min(around, default=call.start)
        ends[step] = max(ends.get(step, 0), call.start + call.duration)
    found = sorted((low, ends[step]) for step, low in begins.items())
    nexts = [low for low, _ in found[1:]] + [high for _, high in found[-1:]]
    return [(low, min(high, end)) for (low, high), end in zip(found, nexts, strict=True)]


def _read(file: Path, ran: _Ran, device: int, rank: int, devices: int) -> tuple[Observed, Links]:
    links = LinksBuilder()
    nothing: dict[str, Any] = {}
    events = Events.empty([nothing], links)
    launched = {kernel.call for kernel in ran.kernels[device]}
    for kernel in ran.kernels[device]:
        start, duration, stream, name, call, moved, _ = kernel
        events.kernels.append(Kernel(start, duration, device, stream, name, None, call, moved))
    threads = set()
    for start, duration, thread, name, call in ran.calls:
        if call in launched:
            threads.add(thread)
            events.runtime[call] = thread, start
            links.call(f"Launch {name}", thread, start, duration, call)
    for start, duration, thread, name, _ in ran.ops:
        if thread in threads:
            events.ops.append(Op(start, duration, thread, name, None, -1, 0))
    events.steps.extend(
        (low, high, f"step#{n}") for n, (low, high) in enumerate(_steps(ran, device))
    )
    rows = ObservedRows(f"{file} (device {device})")
    if devices > 1:
        rows.note(OF_DEVICES)
    if not events.ops:
        stand_in(events)
    mark(events, rows, "no steps in the profile")
    steps = tuple(step[2] for step in events.steps) or ("whole trace",)
    add_ops(rows, events, Groups({}, False), rank, range(len(steps)))
    observed = rows.finish(form="xplane", backend="gpu", world=devices, steps=steps, base=0)
    observed = replace(observed, device=ran.device, host=file.name, hints=_HINTS)
    return observed, links.finish({}, events.steps, 0)
