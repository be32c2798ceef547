"""Profile folders of JAX (xplane files) -> which programs ran on every device, in order.

The idea: every event of an op names its program and, on most backends, its run; a run begins with
its first event.  The HLO shows which programs are heavy.

    program_runs(Path("profile/"), AskedProgram("jit_gradient")).by_rank[0]
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from google.protobuf.message import DecodeError

from flint.converters.profilers.xplane.asked_program import asked_events, chosen_program
from flint.converters.profilers.xplane.devices import Devices, hosts_of
from flint.converters.profilers.xplane.events import Event, events_of, modules_of
from flint.converters.profilers.xplane.profile import begun_runs, profile_files
from flint.converters.profilers.xplane.program import Program
from flint.errors import FlintError
from flint.hlo import hlo_pb2 as pb
from flint.hlo.messages import parse_module
from flint.observed.classes import hlo_class
from flint.observed.program_runs import AskedProgram, ProgramRun, ProgramRuns
from flint.observed.rows import ObservedRows


def program_runs(path: Path, program: AskedProgram | None) -> ProgramRuns:
    """The programs in a profile folder or in one ``.xplane.pb`` file.

    Args:
        path: the folder or file.
        program: an executed program that shows each device's rank; None: devices by their ids.

    Raises:
        FlintError: as ``observe``.
    """
    files = profile_files(path)
    programs: dict[str, Program | None] = {}
    hosts: list[tuple[list[Event], Devices]] = []
    world = None
    for file in files:
        data, events, *_ = events_of(file, ObservedRows(str(path)))
        protos = modules_of(file, data)
        hosts.append((events, Devices(())))
        if program is not None:
            _, asked = chosen_program(file, asked_events(file, events, program, protos), protos)
            module = _module(file, asked)
            world = Program(module, str(file)).devices
            hosts[-1] = events, Devices.of(module)
        for label in {event.program for event in events} - set(programs):
            own = protos.get(label)
            programs[label] = None if own is None else Program(_module(file, own), str(file))
    backends = {event.backend for events, _ in hosts for event in events}
    begins = hosts_of(files, backends, world) if len(files) > 1 else [0]
    of_rank: dict[int, list[Event]] = defaultdict(list)
    for (events, devices), begin in zip(hosts, begins, strict=True):
        for event in events:
            of_rank[devices.rank(begin + event.device)].append(event)
    return ProgramRuns(
        "/".join(sorted(backends)),
        {rank: _of_rank(events, programs) for rank, events in sorted(of_rank.items())},
    )


def _module(file: Path, proto: bytes) -> pb.HloModuleProto:
    try:
        return parse_module(proto)
    except DecodeError as error:
        raise FlintError(f"{file}: damaged HLO ({error})") from error


def _of_rank(events: list[Event], known: dict[str, Program | None]) -> list[ProgramRun]:
    """The runs on one device in the order in which they began."""
    of_program: dict[str, list[Event]] = defaultdict(list)
    for event in sorted(events):
        of_program[event.program].append(event)
    began: list[tuple[int, str]] = []
    for label, own in of_program.items():
        program = known[label]
        first: dict[int, int] = {}
        for event in own if program is None else begun_runs(own, program):
            first.setdefault(event.run, event.start)
        began += [(start, label) for start in first.values()]
    runs = {label: _run(label, program) for label, program in known.items()}
    return [runs[label] for _, label in sorted(began)]


def _run(label: str, program: Program | None) -> ProgramRun:
    types = "" if program is None else program.signature
    return ProgramRun(label.rpartition("(")[0], _is_heavy(program), types)


def _is_heavy(program: Program | None) -> bool:
    """Whether it has ops that must match one by one; unknown for a program without HLO."""
    return program is not None and any(
        hlo_class(item.opcode).must_match for item in program.by_name.values()
    )
