"""``flint convert``: a saved program, or traces of a run, to a workload folder with ETs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from flint.cli.option_groups import TraceOptions, given, with_options
from flint.cli.options import (
    AxesOption,
    ConvertedSystemOption,
    JsonOption,
    MeshOption,
    OutputOption,
    ProfileStepOption,
    ReaderMemoryOption,
    ReplicasOption,
    TargetOption,
    XlaOption,
)
from flint.cli.parsing import (
    by_name,
    existing,
    grid,
    level_and_target,
    parse_scale_out,
    system_of,
    xla_options,
)
from flint.cli.pipes import as_files, reader_bytes, taken
from flint.cli.program_options import ProgramOptions, SavedOptions, convert_file
from flint.cli.refusals import refuse
from flint.cli.saving import save_and_report
from flint.cli.shared import stages_shown
from flint.errors import UsageError
from flint.host.packed_files import Content
from flint.workload.programs import Level
from flint.workload.workload import Workload


@with_options
def convert_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="StableHLO or HLO file in any form, gzip allowed; or a profile: Kineto or "
            "PyTorch execution traces, one per rank, SQLite exports of Nsight Systems, or "
            "a folder or archive of them; or a JAX profile folder; or Chakra execution traces of "
            "all ranks, their folder or prefix.",
        ),
    ],
    output: OutputOption,
    *,
    mesh: MeshOption = None,
    axes: AxesOption = None,
    level: Annotated[
        str | None,
        typer.Option(
            "--level",
            help="partitioned: if the program's shapes are global, XLA's partitioner makes the "
            "program of each device first; optimized: compile the program for --target first; "
            "auto: do this if the compiler for the system's device is installed [default: "
            "partitioned].",
        ),
    ] = None,
    target: TargetOption = None,
    xla_option: XlaOption = None,
    replicas: ReplicasOption = False,
    system: ConvertedSystemOption = None,
    traces: TraceOptions,
    options: ProgramOptions,
    saved: SavedOptions,
    memory_limit: ReaderMemoryOption = None,
    et: Annotated[
        list[Path] | None,
        typer.Option(
            "--et",
            help="PyTorch execution trace of the same run as the Kineto trace, one per rank or "
            "a folder: adds data dependencies (repeatable).",
        ),
    ] = None,
    step: ProfileStepOption = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="NAME=RANKS",
            help="Ranks of a process group that a profile does not record, as NAME=0-7 or "
            "NAME=0,2,4; NAME is the group's name or a collective's (repeatable).",
        ),
    ] = None,
    scale_out: Annotated[
        str | None,
        typer.Option(
            "--scale-out",
            metavar="AXIS=RANKS,...",
            help="Mirror the measured ranks of a profile on a mesh of these sizes, for example "
            "dp=64: collectives along a resized axis are resized and get modelled times; "
            "--mesh and --axes describe the run [default: one axis].",
        ),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Convert a saved program, or traces of a run, to Chakra execution traces."""
    from flint.observed.folders import of_prefixes

    started = time.perf_counter()
    files = of_prefixes(files)
    for file in (*files, *(et or ())):
        _not_converted(existing(file))
    limit = reader_bytes(memory_limit)
    sources = [taken(file, limit) for file in files]
    if _recorded(sources):
        of_programs = given(options) | given(saved) | {"--replicas": replicas}
        of_programs |= {"--level": level is not None, "--target": target is not None}
        of_programs["--xla-option"] = bool(xla_option)
        of_control_flow = {name: of_programs.pop(name) for name in ("--trip-count", "--branch")}
        of_torch = {"--strict": of_programs.pop("--strict"), "--group": bool(group)}
        refuse(of_programs, "for programs; a profile is converted as it ran")
        from flint.observed.reading import is_jax_profile

        if not any(map(is_jax_profile, files)):
            refuse(of_control_flow, "for programs: PyTorch's traces have no loops or branches")
        else:
            refuse(of_torch, "for PyTorch's traces: a JAX profile records its groups")
        with as_files(sources) as profiles:
            workload = _convert_traces(
                profiles, et or [], step, group or [], scale_out, mesh, axes, options, limit
            )
    else:
        refuse({"--scale-out": scale_out is not None}, "for profiles: give a program's --mesh")
        refuse({"--et": et, "--step": step, "--group": group}, f"for profiles; {files[0]} is none")
        level, target = level_and_target(
            level or Level.PARTITIONED, target, system, Level.PARTITIONED
        )
        with stages_shown():
            workload = convert_file(
                sources[0], mesh, axes, options, saved, replicas=replicas, memory_limit=limit,
                level=level, target=target, compiler_options=xla_options(xla_option),
            )  # fmt: skip
        if workload.compiled is not None:
            system = system or system_of(workload.compiled.target)
    save_and_report(
        workload, output, time.perf_counter() - started,
        system=system or workload.usual_system, traces=traces, json_output=json_output,
    )  # fmt: skip


def _not_converted(path: Path) -> None:
    """Refuse a folder that Flint has written.

    Raises:
        UsageError: it is one.
    """
    from flint.workload.folder import is_workload_folder

    if is_workload_folder(path):
        raise UsageError(
            f"{path} is a workload folder, converted already: flint inspect, check and simulate "
            "read it, and flint.load(...).save(...) writes it with other options"
        )


def _recorded(files: list[Path | Content]) -> bool:
    """Whether these files are profiles, not programs.

    Raises:
        UsageError: several files that are not profiles.
    """
    from flint.observed.reading import is_trace

    recorded = [is_trace(file) for file in files]
    if len(files) > 1 and not all(recorded):
        other = files[recorded.index(False)]
        name = other if isinstance(other, Path) else other.path
        raise UsageError(f"{name} is not a profile; convert programs one file at a time")
    return all(recorded)


def _convert_traces(
    files: list[Path],
    et: list[Path],
    step: str | None,
    groups: list[str],
    scale_out: str | None,
    mesh: str | None,
    axes: str | None,
    options: ProgramOptions,
    memory_limit: int,
) -> Workload:
    from flint.post_execution.converting import convert_traces
    from flint.post_execution.inferred_groups import stated_groups

    given, names = grid(mesh, axes)
    sizes = None if scale_out is None else parse_scale_out(scale_out)
    return convert_traces(
        files,
        execution_traces=et,
        mesh=given,
        axes=names,
        step=step,
        groups=stated_groups(groups),
        strict=options.strict,
        scale_out=sizes,
        trip_count=by_name("--trip-count", options.trip_count),
        branch=by_name("--branch", options.branch),
        memory_limit=memory_limit,
    )
