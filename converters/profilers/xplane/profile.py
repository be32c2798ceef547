"""Profile folders of JAX (xplane files) -> the profiled program, and its executed ops.

The idea: the events name HLO ops; the HLO modules are in the same file, in a plane that
``jax.profiler.ProfileData`` does not show, so our own schema reads it.  Events from several hosts'
files are combined.

    profile_of(Path("profile/")).events[0].hlo
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from flint.converters.profilers.xplane.annotated import SEVERAL
from flint.converters.profilers.xplane.asked_program import asked_events, chosen_program
from flint.converters.profilers.xplane.command_buffers import named_ops
from flint.converters.profilers.xplane.devices import Devices, hosts_of
from flint.converters.profilers.xplane.events import Event, Ran, events_of, modules_of
from flint.converters.profilers.xplane.program import Program
from flint.converters.profilers.xplane.whole_runs import CUT, whole_runs
from flint.errors import FlintError
from flint.hlo.messages import parse_module
from flint.host.packed_files import check_all_plain
from flint.observed.program_runs import AskedProgram
from flint.observed.rows import ObservedRows

#: The number of the first device in each of several hosts' files, from files, backends and world.
FirstDevices: TypeAlias = Callable[[Sequence[Path], set[str], int | None], list[int]]


class Profile(NamedTuple):
    """The profiled program, and its executed ops.

    Attributes:
        rows: for notes, and for rows to be added.
        proto: its serialised HLO.
        program: the same, by instruction.
        events: one per op that ran, in order, kernels of an op joined.
        backend: "cpu", "gpu" or "tpu".
        device: the name of the first device, or what describes it; "" if not recorded.
        file_of: the number of the file in which each device is.
        devices: the id of each rank's device, if the program states them; else ().
        version: of the JAX that ran; "" if not recorded.
    """

    rows: ObservedRows
    proto: bytes
    program: Program
    events: list[Event]
    backend: str
    device: str
    file_of: dict[int, int]
    devices: tuple[int, ...]
    version: str


class Read(NamedTuple):
    """The content of a profile.

    Attributes:
        rows: for notes.
        files: one per host.
        ran: what ran by each file.
    """

    rows: ObservedRows
    files: list[Path]
    ran: list[Ran]


def read_profile(path: Path) -> Read:
    """The content of a profile folder or file; errors as of ``observe``."""
    files = profile_files(path)
    rows = ObservedRows(str(path))
    return Read(rows, files, [events_of(file, rows) for file in files])


def profile_of(
    path: Path | Read, asked: AskedProgram | None = None, first_devices: FirstDevices = hosts_of
) -> Profile:
    """The program in a profile folder or file.

    Args:
        path, asked: as in ``observe``; also the errors.
        first_devices: the number of the first device in each host's file.
    """
    rows, files, read = read_profile(path) if isinstance(path, Path) else path
    asked = asked or common_program([ran.events for ran in read])
    hosts = [
        _of_host(file, ran.data, ran.events, rows, asked)
        for file, ran in zip(files, read, strict=True)
    ]
    backends = {event.backend for host in hosts for event in host.events}
    first = hosts[0]
    for ran in read:
        if several := ran.marked.several(first.program.name):
            rows.note(SEVERAL, several)
    for file, host in zip(files, hosts, strict=True):
        if (host.program.name, host.program.entry) != (first.program.name, first.program.entry):
            raise FlintError(
                f"{file}: the program ({host.program.name}) differs from that in {files[0].name} "
                f"({first.program.name}): the hosts of one run execute the same program"
            )
    begins = first_devices(files, backends, first.program.devices) if len(files) > 1 else [0]
    events: list[Event] = []
    of_file: dict[int, Path] = {}
    for file, host, begin in zip(files, hosts, begins, strict=True):
        ranks = {event.device: first.devices.rank(begin + event.device) for event in host.events}
        for rank in ranks.values():
            if of_file.setdefault(rank, file) != file:
                raise FlintError(f"{file}: has rank {rank}, like {of_file[rank].name}")
        events += [event._replace(device=ranks[event.device]) for event in host.events]
    numbered = any(event.run >= 0 for event in events)
    events = begun_runs(sorted(events), first.program)
    backend = "/".join(sorted(backends))
    numbers = {rank: files.index(file) for rank, file in of_file.items()}
    joined = _joined(events, first.program.entry)
    # Runs that only we have numbered have no number in common on several devices.
    process = numbers if numbered else {rank: rank for rank in numbers}
    whole, cut = whole_runs(joined, first.program.entry, process)
    if cut:
        rows.note(CUT, cut)
    return Profile(
        rows, first.proto, first.program, whole, backend, read[0].device, numbers,
        first.devices.ids, read[0].version,
    )  # fmt: skip


class _Host(NamedTuple):
    """One file: its program, and the program's events by device."""

    proto: bytes
    program: Program
    devices: Devices
    events: list[Event]


def common_program(hosts: list[list[Event]]) -> AskedProgram | None:
    """With several hosts, the program that all ran and that took most time; None for one host.

    A host may also run another program that only it runs.
    """
    spent: list[Counter[str]] = []
    for events in hosts if len(hosts) > 1 else ():
        spent.append(Counter())
        for event in events:
            spent[-1][event.program.rpartition("(")[0]] += event.duration
    names = set(spent[0]).intersection(*spent[1:]) if spent else set()
    total = sum(spent, Counter())
    return AskedProgram(max(sorted(names), key=total.__getitem__)) if names else None


def _of_host(
    file: Path,
    data: bytes,
    events: list[Event],
    rows: ObservedRows,
    asked: AskedProgram | None,
) -> _Host:
    protos = modules_of(file, data)
    program, proto = chosen_program(
        file, events if asked is None else asked_events(file, events, asked, protos), protos
    )
    others = Counter(event.program for event in events if event.program != program)
    for other, count in others.items() if asked is None else ():
        rows.note(f"ops of another program that ran as well, {other.rpartition('(')[0]}", count)
    mine = [event for event in events if event.program == program]
    try:
        module = parse_module(proto)
    except DecodeError as error:
        raise FlintError(f"{file}: damaged HLO ({error})") from error
    whole = Program(module, str(file))
    mine = named_ops(mine, whole, module, rows.note)
    return _Host(proto, whole, Devices.of(module), mine)


def profile_files(path: Path) -> list[Path]:
    """The files of one run, one per host."""
    if path.is_file():
        return [path]
    files = sorted(path.glob("**/*.xplane.pb"))
    if not files:
        raise FlintError(f"{path}: no .xplane.pb file in the folder")
    check_all_plain(files)
    runs = sorted({file.parent for file in files})
    if len(runs) > 1:
        raise FlintError(
            f"{path}: profiles of {len(runs)} runs in it; give one of them, for example {runs[-1]}"
        )
    return files


def begun_runs(events: list[Event], program: Program) -> list[Event]:
    """Events with the number of their run, for backends that do not record it.

    Ops in the module's entry run once per run, so each time the first of these ops begins on a
    device, a run begins.
    """
    if any(event.run >= 0 for event in events):
        return events
    found: list[Event] = []
    for _, group in itertools.groupby(events, key=lambda event: event.device):
        mine = list(group)
        first = next((event.hlo for event in mine if event.hlo in program.entry), None)
        places = [place for place, event in enumerate(mine) if event.hlo == first]
        parts = _executions([mine[place].kernel for place in places], False)
        begins = [places[part[0]] for part in parts if part]
        for place, event in enumerate(mine):
            found.append(event._replace(run=max(bisect.bisect_right(begins, place) - 1, 0)))
    return found


def _joined(events: list[Event], entry: frozenset[str]) -> list[Event]:
    """One event per op that ran: the kernels of one execution of an op are joined.

    An op that ran several times ran the same kernels each time.  If its kernels are no such
    repetition (one is missing in the profile), an op in a loop runs again when one of its kernels
    occurs a second time; an op in the entry runs once.
    """
    of_op: dict[tuple[int, int, str], list[int]] = defaultdict(list)
    for place, event in enumerate(events):
        of_op[event.device, event.run, event.hlo].append(place)
    whole: dict[int, Event] = {}
    for (_, _, hlo), places in of_op.items():
        kernels = [events[place].kernel for place in places]
        for part in _executions(kernels, hlo in entry):
            parts = [events[places[number]] for number in part]
            duration, end = sum(one.duration for one in parts), max(one.end for one in parts)
            whole[places[part[0]]] = parts[0]._replace(duration=duration, end=end)
    return [whole[place] for place in sorted(whole)]


def _executions(kernels: list[str], is_once: bool) -> list[range]:
    """The kernels of each execution of an op, by their places."""
    count = len(kernels)
    for size in range(1, count + 1):
        if count % size == 0 and kernels == kernels[:size] * (count // size):
            if size < count or is_once or len(set(kernels)) == count:
                return [range(begin, begin + size) for begin in range(0, count, size)]
            break
    begins, seen = [0], set[str]()
    for place, kernel in enumerate(kernels):
        if kernel in seen:
            begins.append(place)
            seen = set()
        seen.add(kernel)
    return [range(*ends) for ends in itertools.pairwise([*begins, count])]
