"""JAX profiles -> workloads: the compiled program as it ran, with measured times.

The idea: the profiler keeps the HLO of the executed program, so the graph is that of this program,
with its groups and dependencies; only the times come from the run.  Groups of devices that run
programs of their own are ranks of one workload, by their devices' ids.  Each traced device becomes
a program with its loops opened, because each iteration has its own time.  A node is found by its
instruction: while the module is read, every instruction has its number in place of its source line,
which is restored afterwards.

    workload = convert_profile(Path("plugins/profile/2026_11_21"))
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flint import registry
from flint.capturing.converting import ONE_DEVICE, walk_options, workload_of
from flint.errors import FlintError, UsageError
from flint.graph.graph import WorkloadGraph, with_tables
from flint.hlo import hlo_pb2 as pb
from flint.hlo.locations import Locations
from flint.hlo.messages import parse_module
from flint.hlo.reader import read_hlo
from flint.host.reading_memory import bounded
from flint.mesh.mesh import Mesh, MeshLike, as_mesh
from flint.mesh.ranks import from_mask
from flint.passes.on_ranks import on_ranks
from flint.post_execution import control_flow
from flint.post_execution.module_replay import Part, replayed_programs
from flint.post_execution.module_times import ModuleTimes
from flint.stablehlo.options import WalkOptions
from flint.stablehlo.rules.custom_calls import may_lack_flops
from flint.stablehlo.walker import walk
from flint.workload.programs import PROFILED_SEQUENCE
from flint.workload.workload import Workload

#: Replaces the source file while the line is an instruction's number.
_NUMBERED = "\x00instruction"
_DEPTH = 64


class _Place(NamedTuple):
    """An instruction's source line, and the executed instruction that it is part of."""

    file: str
    line: int
    owner: str


def convert_profile(
    path: Path,
    *,
    mesh: MeshLike | None = None,
    axes: Sequence[str] | None = None,
    step: str | None = None,
    trip_count: int | Mapping[str, int] | None = None,
    branch: int | Mapping[str, int] | None = None,
) -> Workload:
    """The program of a profile, with the times that it measured.

    Args:
        path: the profile folder, or the file in it.
        mesh, axes, step, trip_count, branch: as in ``flint.convert_traces``.

    Raises:
        UsageError: no such step, a mesh that does not fit.
        FlintError: the profile is damaged or has no program.
    """
    read = registry.converter("xplane-times")
    with bounded(path):
        times = read(path, step)
    grid = as_mesh(mesh, axes) if mesh is not None else None
    options = walk_options(trip_count=trip_count, branch=branch)
    return workload_of_times(times, mesh=grid, axes=axes, options=options)


def workload_of_times(
    groups: Sequence[ModuleTimes],
    *,
    mesh: Mesh | None,
    axes: Sequence[str] | None,
    options: WalkOptions,
) -> Workload:
    """The workload of executed programs.

    Args:
        groups: times from a profile, of each group of devices with programs of its own.
        mesh: device grid; default: the module's own, or one axis if it has none or there are
            several groups.
        axes: names of the mesh axes, with ``mesh``.
        options: choices for loops and branches that depend on data.

    Raises:
        UsageError: a mesh that does not fit.
        FlintError: a program cannot be converted, or the trace has no times for it.
    """
    alone = len(groups) == 1
    read = [_read(times, mesh if alone else None, options) for times in groups]
    workload = read[0].workload
    if not alone:
        devices = sorted(device for times in groups for device in times.devices)
        if mesh is not None and mesh.size != len(devices):
            raise UsageError(f"a mesh of {mesh.size:,} devices: the profile has {len(devices):,}")
        read = [_on_ranks(group, devices) for group in read]
        workload = replace(workload, mesh=mesh or Mesh((len(devices),), ()))
    if axes is not None and mesh is None and len(axes) == len(workload.mesh.shape):
        workload = replace(workload, mesh=Mesh(workload.mesh.shape, tuple(axes)))
    warnings: dict[str, int] = {}
    for group in read:
        own = dict(group.workload.warnings) | group.times.notes
        warnings |= {text: n for text, n in own.items() if alone or text != ONE_DEVICE}
    programs = replayed_programs([group.part for group in read], warnings)
    first = groups[0]
    measured: dict[str, Any] = {
        "measured": True, "run": first.run, "devices": sum(len(times.runs) for times in groups),
        "device": first.device,
    }  # fmt: skip
    names = [name for times in groups for name in times.programs]
    if len(names) > 1:
        measured[PROFILED_SEQUENCE] = names
    digest = hashlib.sha256(b"".join(times.proto for times in groups)).hexdigest()
    timed = replace(
        workload,
        programs=programs,
        warnings=warnings,
        options=workload.options | measured,
        input={"file": first.path, "sha256": digest},
    )
    timed.verify()
    return timed


class _Group(NamedTuple):
    """A group of devices: its workload without times, and what is to be replayed."""

    times: ModuleTimes
    workload: Workload
    part: Part


def _read(times: ModuleTimes, mesh: Mesh | None, options: WalkOptions) -> _Group:
    """A program as it would be without a profile, each node with its instruction."""
    with bounded(times.path):
        proto = parse_module(times.proto)
        control_flow.state(proto, [run.names for run in times.runs])
        places = _number(proto, times.executed, times.enclosing)
        targets = {i.custom_call_target for c in proto.computations for i in c.instructions}
        module = read_hlo(proto.SerializeToString(), times.path)
    try:
        walked = walk(module, mesh, options)
    except FlintError as error:
        raise type(error)(_with_lines(str(error), places)) from error
    workload = workload_of(
        walked, module, options=options, source={}, saved=(times.proto, ".hlo.pb")
    )
    placed = {program.name: _placed(program.graph, places) for program in workload.programs}
    return _Group(
        times,
        workload,
        Part(
            [replace(program, graph=placed[program.name][0]) for program in workload.programs],
            {name: owner for name, (_, owner) in placed.items()},
            times,
            {target for target in targets if target and may_lack_flops(target)},
        ),
    )


def _on_ranks(group: _Group, devices: Sequence[int]) -> _Group:
    """A group among all devices, by ascending id."""
    place = {device: rank for rank, device in enumerate(devices)}
    ranks = np.array([place[device] for device in group.times.devices], np.int64)
    world = len(devices)
    programs = []
    for program in group.part.programs:
        mask = np.zeros(world, bool)
        mask[ranks[program.ranks.array()]] = True
        graph = on_ranks(program.graph, ranks, world)
        programs.append(replace(program, graph=graph, ranks=from_mask(mask)))
    runs = tuple(replace(run, rank=int(ranks[run.rank])) for run in group.times.runs)
    times = replace(group.times, runs=runs)
    return group._replace(part=group.part._replace(programs=programs, times=times))


def _with_lines(text: str, places: list[_Place]) -> str:
    """A message with source lines in place of instructions' numbers."""

    def line(match: re.Match[str]) -> str:
        place = places[int(match[1]) - 1]
        return f" at {place.file}:{place.line}" if place.file else ""

    return re.sub(rf" at {_NUMBERED}:(\d+)", line, text)


def _number(
    proto: pb.HloModuleProto, executed: Collection[str], enclosing: Collection[str]
) -> list[_Place]:
    """Replace each instruction's source line by a number; returns what each number refers to."""
    computations = {item.id: item for item in proto.computations}
    locations = Locations(proto.stack_frame_index, tuple(proto.payloads))
    owner = _owners(proto, computations, executed, enclosing)
    places: list[_Place] = []
    for computation in proto.computations:
        for instruction in computation.instructions:
            name = ""
            file, line = "", 0
            if instruction.metadata:
                numbers = locations.numbers
                info = locations(numbers.setdefault(instruction.metadata, len(numbers)))
                name, file, line = info.name, info.file, info.line
            places.append(_Place(file, line, owner.get(instruction.name, "")))
            metadata = pb.OpMetadata(op_name=name, source_file=_NUMBERED, source_line=len(places))
            instruction.metadata = metadata.SerializeToString()
    return places


def _owners(
    proto: pb.HloModuleProto,
    computations: Mapping[int, Any],
    executed: Collection[str],
    enclosing: Collection[str],
) -> dict[str, str]:
    """Instruction -> the executed instruction that it is part of: itself, its fusion, or its
    start.
    """
    owner: dict[str, str] = {}
    names = {item.id: item.name for c in proto.computations for item in c.instructions}

    def claim(number: int, name: str, depth: int) -> None:
        computation = computations.get(number)
        if computation is None or depth > _DEPTH:
            return
        for inner in computation.instructions:
            if inner.name not in executed and inner.name not in owner:
                owner[inner.name] = name
                for called in inner.called_computation_ids:
                    claim(called, name, depth + 1)

    for computation in proto.computations:
        for item in computation.instructions:
            if item.opcode.endswith("-done") and item.operand_ids:
                start = names.get(item.operand_ids[0], "")
                if start in executed:
                    owner[item.name] = start
            if item.name not in executed:
                continue
            owner.setdefault(item.name, item.name)
            if item.name not in enclosing:
                for called in item.called_computation_ids:
                    claim(called, item.name, 0)
    return owner


def _placed(graph: WorkloadGraph, places: list[_Place]) -> tuple[WorkloadGraph, list[str]]:
    """The graph with its source lines again, and the owner of each of its sources."""
    lines = [source.line - 1 if source.file == _NUMBERED else -1 for source in graph.tables.sources]
    sources = tuple(
        replace(source, file=places[line].file, line=places[line].line) if line >= 0 else source
        for source, line in zip(graph.tables.sources, lines, strict=True)
    )
    owner = [places[line].owner if line >= 0 else "" for line in lines]
    return with_tables(graph, replace(graph.tables, sources=sources)), owner
